"""Puts classes of scripts into what Monty has: without bases, decorators and exceptions.

A class has copies of the methods of the classes it is one of. Properties are methods that are
called where they are read. An exception of one's own is one of Python's under that name, and an
enum is an object that holds its members.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any, Final

from delf_sandbox.guest.functions import label_of
from delf_sandbox.guest.nodes import AmbiguousError, at, attribute, name
from delf_sandbox_monty.aliases import OWN, PARENTS

MEMBER: Final = "__delf_is_member__"
_NOMINAL: Final = frozenset({"object", "ABC", "Protocol", "Generic"})
_ENUMS: Final = {"Enum": "", "StrEnum": "StrEnum", "IntEnum": "IntEnum"}
_MIXED: Final = frozenset({"str", "int"})
_ACCESSORS: Final = frozenset({"property", "staticmethod", "classmethod"})
_IGNORED: Final = frozenset({"abstractmethod", "override", "final"})
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_KNOWN: Final = frozenset(
    {"__init__", "__post_init__", "__repr__", "__str__", "__eq__", "__hash__", "__contains__"}
    | {"__call__", "__getitem__", "__setitem__", "__iter__", "__next__", "__int__"}
    | {"__enter__", "__exit__", "__aenter__", "__aexit__"}
    | {"__add__", "__sub__", "__mul__", "__truediv__", "__floordiv__", "__mod__", "__pow__"}
    | {"__radd__", "__iadd__", "__neg__"}
)
"""The methods with names of Python's that Monty calls."""


def _parents(base: str) -> Iterator[str]:
    while base in PARENTS:
        base = PARENTS[base]
        yield base


class _RefusedError(Exception):
    """A class that cannot be put otherwise; Monty says why."""


class Classes(ast.NodeTransformer):
    """Lowers the classes of a session's scripts, one script after another."""

    def __init__(self) -> None:
        self.enums: set[str] = set()
        self.errors: dict[str, str] = {}
        """The name in Monty of each exception of the scripts."""
        self._above: dict[str, frozenset[str]] = {}
        """The parents of each of them."""
        self._makings: dict[str, str] = {}
        """Of which of them each has its ``__init__``."""
        self._found: dict[str, ast.ClassDef] = {}
        self._below: dict[str, list[str]] = {}
        self._properties: dict[str, set[str]] = {}
        """The classes of each property."""
        self._bound: dict[str, dict[str, str]] = {}
        """The classes of each static or class method, and which it is."""
        self._inside: list[str] = []

    def lower(self, tree: ast.Module) -> None:
        """Lower a script, in place.

        Args:
            tree: The script.
        """
        defined = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for node in defined:
            check_methods(node)
            self._forget(node.name)
        names = [node.name for node in defined]
        for node in defined:
            if names.count(node.name) == 1:
                self._look_at(node)
        self.visit(tree)

    def _forget(self, word: str) -> None:
        """Forget a class of an earlier script, because its name means another one now."""
        self.enums.discard(word)
        self._found.pop(word, None)
        self._above.pop(word, None)
        self._makings.pop(word, None)
        for classes in (*self._properties.values(),):
            classes.discard(word)
        for methods in self._bound.values():
            methods.pop(word, None)
        for below in self._below.values():
            below[:] = [one for one in below if one != word]

    # -- what the classes are -----------------------------------------------------------

    def _look_at(self, node: ast.ClassDef) -> None:
        bases = [_word(base) for base in node.bases]
        if _is_enum(node, bases):
            self.enums.add(node.name)
        elif _is_error(node) and (bases[0] in PARENTS or bases[0] in self._above):
            self._look_at_error(node, bases[0])
        else:
            self._look_at_methods(node, bases)

    def _look_at_error(self, node: ast.ClassDef, base: str) -> None:
        free = [alias for alias in OWN if alias not in self.errors.values()]
        if node.name not in self.errors and not free:
            raise AmbiguousError.about(
                node, f"this sandbox has no more than {len(OWN)} exceptions of one's own"
            )
        self.errors.setdefault(node.name, free[0] if free else "")
        self._above[node.name] = frozenset({base, *_parents(base), *self._above.get(base, ())})
        if any(isinstance(part, ast.FunctionDef) for part in node.body):
            self._makings[node.name] = node.name
        elif base in self._makings:
            self._makings[node.name] = self._makings[base]

    def _look_at_methods(self, node: ast.ClassDef, bases: list[str]) -> None:
        above = [base for base in bases if base not in _NOMINAL]
        whole = copy.deepcopy(node)
        if len(above) == 1 and above[0] in self._found:
            try:
                self._take_from(whole, self._found[above[0]])
            except _RefusedError:
                self._found.pop(node.name, None)
                return
            for kind in [above[0], *(k for k, below in self._below.items() if above[0] in below)]:
                self._below.setdefault(kind, []).append(node.name)
        elif above or any(_word(label.value) != "ABCMeta" for label in node.keywords):
            return
        else:
            whole.bases, whole.keywords = [], []
            for part in ast.walk(whole):
                if isinstance(part, ast.Expr) and _super_call(part.value):
                    part.value = ast.Constant(value=None, **at(part))
        self._found[node.name] = whole
        for part in whole.body:
            if isinstance(part, _FUNCTIONS):
                self._look_at_method(whole, part)

    def _look_at_method(self, node: ast.ClassDef, part: Any) -> None:
        kinds = [(label_of(one) or "").rpartition(".")[2] for one in part.decorator_list]
        if "property" in kinds:
            self._properties.setdefault(part.name, set()).add(node.name)
        for kind in ("staticmethod", "classmethod"):
            if kind in kinds:
                self._bound.setdefault(part.name, {})[node.name] = kind

    def _take_from(self, node: ast.ClassDef, base: ast.ClassDef) -> None:
        """Give a class what another has, and its ``super()`` that one's methods."""
        if base.decorator_list and not node.decorator_list:
            raise _RefusedError
        own = {"", *map(_defined, node.body)}
        taken = [copy.deepcopy(part) for part in base.body if _defined(part) not in own]
        called: dict[str, str] = {}
        for part in ast.walk(node):
            if isinstance(part, ast.Call) and (word := _super_call(part)) is not None:
                part.func = attribute(name(part, "self"), f"_delf_{base.name}_{word}")
                called[word] = part.func.attr
        if any(isinstance(part, ast.Name) and part.id == "super" for part in ast.walk(node)):
            raise _RefusedError
        for word, new in called.items():
            method = next((p for p in base.body if _defined(p) == word), None)
            if word == "__init__" and method is None:
                method = _empty_method(node)
            if not isinstance(method, _FUNCTIONS):
                raise _RefusedError
            method = copy.deepcopy(method)
            method.name = new
            taken.append(method)
        node.bases, node.keywords = [], []
        node.body = [*taken, *node.body]

    # -- what is put in their place -----------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Put a class otherwise."""
        if node.name in self.enums:
            return _enum(node)
        if node.name in self._above:
            return self._error(node)
        if [_word(base) for base in node.bases] == ["TypedDict"]:
            target = ast.Name(id=node.name, ctx=ast.Store(), **at(node))
            return ast.Assign(targets=[target], value=name(node, "dict"), **at(node))
        if [_word(base) for base in node.bases] == ["NamedTuple"] and (made := _tuple(node)):
            return made
        whole = copy.deepcopy(self._found.get(node.name, node))
        self._inside.append(node.name)
        self.generic_visit(whole)
        self._inside.pop()
        for part in whole.body:
            if isinstance(part, _FUNCTIONS):
                self._write_method(whole, part)
        return whole

    def _write_method(self, node: ast.ClassDef, part: Any) -> None:
        kept: list[ast.expr] = []
        for one in part.decorator_list:
            kind = (label_of(one) or "").rpartition(".")[2]
            if kind == "property" and node.name in self._properties.get(part.name, ()):
                part.name = f"_delf_get_{part.name}"
            elif kind not in _IGNORED and not (
                kind in _ACCESSORS and node.name in self._bound.get(part.name, ())
            ):
                kept.append(one)
        part.decorator_list = kept

    def _error(self, node: ast.ClassDef) -> list[ast.stmt]:
        alias = self.errors[node.name]
        own = attribute(name(node, "_decimal"), alias)
        target = ast.Name(id=node.name, ctx=ast.Store(), **at(node))
        shown = ast.Subscript(
            value=name(node, "__delf_errors__"),
            slice=ast.Constant(value=alias, **at(node)),
            ctx=ast.Store(),
            **at(node),
        )
        word = ast.Constant(value=node.name, **at(node))
        found: list[ast.stmt] = [
            ast.Assign(targets=[target], value=own, **at(node)),
            ast.Assign(targets=[shown], value=word, **at(node)),
        ]
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                made = copy.deepcopy(part)
                self.generic_visit(made)
                made.name = _making_of(node.name)
                held, above = made.args.args[0].arg, self._makings.get(_word(node.bases[0]))
                for inner in ast.walk(made):
                    if not isinstance(inner, ast.Call) or _super_call(inner) != "__init__":
                        continue
                    if above is None:
                        inner.func = attribute(name(inner, held), "delf_say")
                    else:
                        inner.func = name(inner, _making_of(above))
                        inner.args.insert(0, name(inner, held))
                found.append(made)
        return found

    def visit_Raise(self, node: ast.Raise) -> Any:
        """``raise Missing`` is ``raise Missing()``."""
        match node.exc:
            case ast.Name(id=word) if word in self._above:
                node.exc = ast.Call(func=node.exc, args=[], keywords=[], **at(node.exc))
            case _:
                pass
        self.generic_visit(node)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        """Catch the script's own exceptions with what they are one of."""
        self.generic_visit(node)
        if node.type is not None:
            node.type = self._with_below(node.type)
        return node

    def _with_below(self, given: Any) -> Any:
        listed = given.elts if isinstance(given, ast.Tuple) else [given]
        more: list[str] = []
        for one in listed:
            word = label_of(one) or ""
            more += [own for own, above in self._above.items() if word in above]
            more += self._below.get(word, ())
        if not more:
            return given
        items = [*listed, *(name(given, word) for word in dict.fromkeys(more))]
        return ast.Tuple(elts=items, ctx=ast.Load(), **at(given))

    def visit_MatchClass(self, node: ast.MatchClass) -> Any:
        """Match the classes that are one of another."""
        self.generic_visit(node)
        below = self._below.get(label_of(node.cls) or "")
        if not below:
            return node
        found: list[ast.pattern] = [node]
        for word in below:
            other = copy.deepcopy(node)
            other.cls = name(node.cls, word)
            found.append(other)
        return ast.MatchOr(patterns=found, **at(node))

    def visit_Compare(self, node: ast.Compare) -> Any:
        """``type(x) is Status``, where that is an enum."""
        self.generic_visit(node)
        match node:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="type"), args=[value]),
                ops=[ast.Eq() | ast.Is()],
                comparators=[ast.Name(id=word) as kind],
            ) if word in self.enums:
                return ast.Call(
                    func=name(node, MEMBER), args=[value, kind], keywords=[], **at(node)
                )
            case _:
                return node

    def visit_Call(self, node: ast.Call) -> Any:
        """Calls of what is put otherwise."""
        if isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)  # and no property
            for index, item in enumerate(node.args):
                node.args[index] = self.visit(item)
            for keyword in node.keywords:
                keyword.value = self.visit(keyword.value)
        else:
            self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[value, kind]):
                if isinstance(kind, ast.Name) and kind.id in self.enums:
                    return ast.Call(
                        func=name(node, MEMBER), args=[value, kind], keywords=[], **at(node)
                    )
                node.args[1] = self._with_below(kind)
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=word) as given]) if (
                word in self.enums
            ):
                node.args = [attribute(given, "delf_members")]
            case ast.Call(func=ast.Name(id=word)) if word in self._above:
                return self._made(node, word)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=word)) if any(
                self._bound.get(word, ())
            ):
                return self._write_bound(node, owner, word)
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name(id=made)), attr=word)):
                if made in self._bound.get(word, ()):
                    raise AmbiguousError.about(
                        node, f"this sandbox calls {word} by the name of its class: {made}.{word}"
                    )
            case _:
                pass
        return node

    def _made(self, node: ast.Call, word: str) -> ast.Call:
        """An exception of the script."""
        owner = self._makings.get(word)
        if owner is None:
            if node.keywords or len(node.args) > 1:
                raise AmbiguousError.about(
                    node, f"this sandbox makes {word} of one text: give it that, or none"
                )
            node.args = [_as_text(item) for item in node.args]
            return node
        first = [node.func, name(node, _making_of(owner))]
        return ast.Call(
            func=name(node, "__delf_own__"),
            args=[*first, *node.args],
            keywords=node.keywords,
            **at(node),
        )

    def _write_bound(self, node: ast.Call, owner: str, word: str) -> ast.expr:
        """``Shop.parse(x)``, and ``one.parse(x)`` of what is not a method of an object."""
        classes = self._bound[word]
        inside = self._inside[-1] if self._inside else ""
        if owner in self._found or (owner in ("self", "cls") and inside in classes):
            home = owner if owner in self._found else inside
            return _bound_call(node, home, owner, classes.get(home))
        found: ast.expr = node
        for home in sorted(classes):
            kind = ast.Call(
                func=name(node, "type"), args=[name(node, owner)], keywords=[], **at(node)
            )
            is_one = ast.Compare(
                left=attribute(kind, "__name__"),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=home, **at(node))],
                **at(node),
            )
            made = _bound_call(copy.deepcopy(node), home, home, classes[home])
            found = ast.IfExp(test=is_one, body=made, orelse=found, **at(node))
        return found

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Read properties by calling what gives them."""
        self.generic_visit(node)
        if node.attr not in self._properties or not isinstance(node.ctx, ast.Load):
            return node
        given = ast.arg(arg="given", **at(node))
        takes = ast.arguments(
            posonlyargs=[], args=[given], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        read = ast.Call(
            func=attribute(name(node, "given"), f"_delf_get_{node.attr}"),
            args=[],
            keywords=[],
            **at(node),
        )
        kinds = [
            ast.Constant(value=kind, **at(node)) for kind in sorted(self._properties[node.attr])
        ]
        return ast.Call(
            func=name(node, "__delf_read__"),
            args=[
                node.value,
                ast.Constant(value=node.attr, **at(node)),
                ast.Tuple(elts=list(kinds), ctx=ast.Load(), **at(node)),
                ast.Lambda(args=takes, body=read, **at(node)),
            ],
            keywords=[],
            **at(node),
        )


def _bound_call(node: ast.Call, home: str, owner: str, kind: str | None) -> ast.Call:
    """A call of a static or a class method by its class."""
    function: Any = node.func
    if kind is not None and owner != "cls":
        node.func = attribute(name(function, home), function.attr)
    if kind == "classmethod":
        node.args.insert(0, name(function, "cls" if owner == "cls" else home))
    return node


def check_methods(node: ast.ClassDef) -> None:
    """Refuse methods that Monty does not call, where Python would.

    Raises:
        AmbiguousError: For the first of them.
    """
    for part in node.body:
        word = _defined(part)
        if isinstance(part, _FUNCTIONS) and word.startswith("__") and word not in _KNOWN:
            raise AmbiguousError.about(
                part,
                f"this sandbox runs a subset of Python without {word} of classes: write a method "
                "of another name and call it",
            )


def _is_error(node: ast.ClassDef) -> bool:
    """Tell whether a class may be an exception of which nothing but its making is its own."""
    is_plain = len(node.bases) == 1 and not node.keywords and not node.decorator_list
    return is_plain and all(_is_text(part) or _is_making(part) for part in node.body)


def _is_enum(node: ast.ClassDef, bases: list[str]) -> bool:
    """Tell whether a class is an enum of constants and nothing else."""
    return (
        bool(bases)
        and bases[-1] in _ENUMS
        and all(base in _MIXED for base in bases[:-1])
        and not node.decorator_list
        and all(_is_text(part) or _is_constant(part) for part in node.body)
    )


def _enum(node: ast.ClassDef) -> ast.stmt:
    """An enum as an object that holds its members."""
    kind = _ENUMS[_word(node.bases[-1])] or (_word(node.bases[0]) if len(node.bases) > 1 else "")
    members: list[ast.expr] = []
    for part in node.body:
        if isinstance(part, ast.Assign):
            word, value = _defined(part), part.value
            if isinstance(value, ast.Call):
                made = word.lower() if kind == "StrEnum" else len(members) + 1
                value = ast.Constant(value=made, **at(part))
            pair: list[ast.expr] = [ast.Constant(value=word, **at(part)), value]
            members.append(ast.Tuple(elts=pair, ctx=ast.Load(), **at(part)))
    given: list[ast.expr] = [
        ast.Constant(value=node.name, **at(node)),
        ast.Constant(value=kind, **at(node)),
        ast.List(elts=members, ctx=ast.Load(), **at(node)),
    ]
    made_of = ast.Call(func=name(node, "__delf_Enum__"), args=given, keywords=[], **at(node))
    target = ast.Name(id=node.name, ctx=ast.Store(), **at(node))
    return ast.Assign(targets=[target], value=made_of, **at(node))


def _tuple(node: ast.ClassDef) -> ast.stmt | None:
    """A ``NamedTuple`` as ``collections.namedtuple``; None where it has more than fields."""
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    if not all(_is_text(part) or isinstance(part, ast.AnnAssign) for part in node.body):
        return None
    words: list[ast.expr] = [ast.Constant(value=_defined(part), **at(part)) for part in fields]
    defaults = [part.value for part in fields if part.value is not None]
    given: list[ast.expr] = [
        ast.Constant(value=node.name, **at(node)),
        ast.List(elts=words, ctx=ast.Load(), **at(node)),
    ]
    more = [
        ast.keyword("defaults", ast.List(elts=defaults, ctx=ast.Load(), **at(node)), **at(node))
    ]
    made = ast.Call(
        func=name(node, "__delf_namedtuple__"),
        args=given,
        keywords=more if defaults else [],
        **at(node),
    )
    target = ast.Name(id=node.name, ctx=ast.Store(), **at(node))
    return ast.Assign(targets=[target], value=made, **at(node))


def _is_constant(part: ast.stmt) -> bool:
    match part:
        case ast.Assign(targets=[ast.Name(id=word)], value=value) if not word.startswith("_"):
            called = [one for one in ast.walk(value) if isinstance(one, ast.Call)]
            return not called or (len(called) == 1 and _word(called[0].func) == "auto")
        case _:
            return False


def _is_text(part: ast.stmt) -> bool:
    """Tell whether a statement says nothing but what something is for."""
    return isinstance(part, ast.Pass) or (
        isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)
    )


def _is_making(part: ast.stmt) -> bool:
    return isinstance(part, ast.FunctionDef) and part.name == "__init__" and not part.decorator_list


def _making_of(word: str) -> str:
    return f"__delf_make_{word}__"


def _word(node: Any) -> str:
    """The last part of a name."""
    return (label_of(node.value if isinstance(node, ast.Subscript) else node) or "").split(".")[-1]


def _defined(part: ast.stmt) -> str:
    """Return the name that a statement of a class defines; empty for none."""
    match part:
        case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word):
            return word
        case ast.Assign(targets=[ast.Name(id=word)]) | ast.AnnAssign(target=ast.Name(id=word)):
            return word
        case _:
            return ""


def _super_call(node: ast.AST) -> str | None:
    """The method that ``super().method(…)`` calls."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=str(word))
        ):
            return word
        case _:
            return None


def _empty_method(node: ast.ClassDef) -> ast.FunctionDef:
    """An ``__init__`` that does nothing."""
    takes = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg="self", **at(node))],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    made = ast.FunctionDef(name="__init__", args=takes, decorator_list=[], **at(node))
    made.body = [ast.Pass(**at(node))]
    if "type_params" in ast.FunctionDef._fields:
        made.type_params = []  # pyright: ignore[reportAttributeAccessIssue]
    return made


def _as_text(node: Any) -> ast.expr:
    is_text = isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    if is_text:
        return node
    return ast.Call(func=name(node, "str"), args=[node], keywords=[], **at(node))
