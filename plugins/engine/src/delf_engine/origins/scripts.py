"""Sources of the values of a script's calls, read from the script's text.

The order of statements does not count: a name stands for everything that any statement may put
into its object, through this name or through another name of the object. What is not understood
counts as an unknown source.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from delf_engine.origins.values import parameter_of

_READERS: Final = "open input exec eval compile globals locals vars __import__"
"""Builtins that introduce data the script does not state."""
_PLAIN: Final = {*dir(builtins), "asyncio"}.difference(_READERS.split())
_PURE: Final = (
    "asyncio base64 calendar collections copy csv dataclasses datetime decimal enum fractions "
    "functools hashlib heapq html io itertools json math operator random re statistics string "
    "textwrap time typing unicodedata uuid zoneinfo"
)
"""Modules that introduce no data of others."""
_UNKNOWN: Final = ast.Name("?", ast.Load())
_TELLING: Final = (
    "casefold center copy count date decode dumps encode endswith find findall finditer format "
    "fromisoformat fullmatch get group groups index isalpha isdigit isoformat items join keys "
    "ljust loads lower lstrip match mean most_common now partition removeprefix removesuffix "
    "replace rfind rjust rpartition rsplit rstrip search split splitlines startswith strftime "
    "strip strptime sub sum title today total_seconds upper values zfill"
)
"""Methods of usual objects that change neither their object nor their arguments."""
_HIDDEN_WAYS: Final = (
    "globals locals vars setattr delattr exec eval redirect_stdout redirect_stderr getcontext "
    "localcontext setcontext"
)
"""Names by which a script changes values without a statement that shows it."""
_USUAL_METHODS: Final = "__init__ __call__ __post_init__ __enter__ __exit__ __iter__ __repr__"
"""Methods that a script calls visibly, or whose parameters hold no values of others."""
_KEEPS_OBJECTS: Final = (
    ast.Name, ast.Subscript, ast.Attribute, ast.Call, ast.IfExp, ast.BoolOp, ast.Starred, ast.Tuple,
    ast.List, ast.Dict, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.NamedExpr,
)  # fmt: skip
"""Expressions whose value may hold the very objects that their names stand for."""

_Change = tuple[Iterable[str], Sequence[ast.AST]]
"""Names, and the expressions that may get into them or into their objects."""


class Scripts:
    """The clean scripts of a task, which share their variables.

    Args:
        is_action: Returns whether a dotted name is an action.
    """

    def __init__(self, is_action: Callable[[str], bool]) -> None:
        self._is_action = is_action
        self._made_of: dict[str, list[ast.AST]] = defaultdict(list)
        """The expressions and statements that may put something into each name's object."""
        self._bound: set[str] = set()
        """The names that the scripts bind, which may hide an action."""
        self._is_hidden = False
        """True if a script may change values in a way that its text does not show."""
        self._last: dict[str, list[ast.Call]] = {}
        self._passed_on: dict[str, set[int]] = {}
        """The lines on which an action is a value, and not called."""
        self._known: dict[tuple[str, str, int | None], frozenset[str] | None] = {}

    def add(self, code: str) -> None:
        """Analyse a script; invalid Python is ignored."""
        self._last, self._passed_on, self._known = defaultdict(list), defaultdict(set), {}
        try:
            nodes = [*ast.walk(ast.parse(code))]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        self._pass_arguments(nodes)
        changed: list[_Change] = []
        for node in nodes:
            self._is_hidden = self._is_hidden or _is_hidden_way(node)
            for names, sources in self._bindings(node):
                self._put(names, sources)
                self._bound.update(names)
            changed += self._changes(node)
            # Whether a change is made tells what its condition holds.
            if conditions := _conditions(node):
                for inner in ast.walk(node):
                    for names, _ in self._bindings(inner):
                        self._put(names, conditions)
                    changed += ((names, conditions) for names, _ in self._changes(inner))
            elif conditions := _conditions_within(node):
                inside = [pair for each in ast.walk(node) for pair in self._changes(each)]
                changed += ((names, conditions) for names, _ in inside)
        self._change(changed)
        self._find_calls(nodes)

    def _find_calls(self, nodes: Sequence[ast.AST]) -> None:
        """Note the calls of each action, and the lines on which a script passes an action on."""
        parts = set[int]()
        for node in nodes:
            if isinstance(node, ast.Call) and self._is_action(name := dotted(node.func)):
                self._last[name].append(node)
                parts.update(map(id, ast.walk(node.func)))
        for node in nodes:
            match node:
                case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                    if id(node) not in parts and self._is_action(name := dotted(node)):
                        self._passed_on[name].add(node.lineno)
                case _:
                    pass

    def _change(self, changed: Iterable[_Change]) -> None:
        """Add a change of an object to every name that may refer to the object."""
        made_of = {name: [*sources] for name, sources in self._made_of.items()}
        reached: dict[str, set[str]] = {}
        for names, sources in changed:
            for name in names:
                if name not in reached:
                    reached[name] = _objects_of(name, made_of)
                self._put(reached[name], sources)

    def sources(
        self, action: str, parameters: Sequence[str], path: str, line: int | None
    ) -> frozenset[str] | None:
        """Return the actions and unknown names behind an argument in the last script.

        Returns:
            The names; None if the script's text has no such call, or may change values in a way
            that it does not show. If the line of the call is unknown, all calls of the action
            count.
        """
        key = action, path, line
        if key not in self._known:
            every = [] if self._is_hidden else self._last.get(action, [])
            calls = [c for c in every if line and c.lineno <= line <= (c.end_lineno or line)]
            if passed_on := self._passed_on.get(action):
                # The action may be called under another name, where the text shows no call.
                every = calls if line not in passed_on else []
            name, found = letters_of_name(parameter_of(path)), set[str]()
            for call in calls or every:
                given = arguments_of(call, parameters)
                found.update(self._reached(given.get(name, given.get("*", _UNKNOWN))))
            self._known[key] = frozenset(found) if every else None
        return self._known[key]

    def _reached(self, node: ast.AST) -> Iterator[str]:
        todo, seen = [node], set[str]()
        while todo:
            match item := todo.pop():
                case ast.Call(func=func) if self._is_action(name := dotted(func)):
                    yield name
                    todo += _given_to(item)
                    if name.partition(".")[0] in self._bound:
                        todo.append(func)  # the script may have put something else there
                case ast.Name(id=name) if name not in seen:
                    seen.add(name)
                    if name not in self._bound and name not in _PLAIN:
                        yield name
                    todo += self._made_of.get(name, ())
                case ast.Name():
                    pass
                case _:
                    todo += ast.iter_child_nodes(item)

    def _put(self, names: Iterable[str], sources: Iterable[ast.AST]) -> None:
        for name in names:
            known = set(map(id, self._made_of[name]))
            self._made_of[name] += (each for each in sources if id(each) not in known)

    def _bindings(self, node: ast.AST) -> Iterator[_Change]:
        """Yield the names that a node binds, with the expressions that may flow into each name."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield [node.name], [node]
            case ast.arguments():
                yield _parameters(node), _expressions(node)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield [name], [_UNKNOWN]
            case ast.Try(body=body, handlers=handlers):
                yield [each.name for each in handlers if each.name], body
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                module = getattr(node, "module", None)
                for each in imported:
                    is_pure = (module or each.name).partition(".")[0] in _PURE.split()
                    name = each.asname or each.name.partition(".")[0]
                    yield [name], [] if is_pure else [_UNKNOWN]
            case ast.comprehension(target=target, iter=source):
                yield _names(target), [source]
            case _:
                targets, sources = _targets(node)
                for each in filter(_is_plain, targets):  # in ``a = b = []`` they are one object
                    yield (
                        _names(each),
                        [*sources, *(other for other in targets if other is not each)],
                    )

    def _changes(self, node: ast.AST) -> Iterator[_Change]:
        """Yield the names whose objects a node may change, with the parts that may get there."""
        match node:
            case ast.Expr(value=value) if not self._only_tells(value):
                # What it gives back is not used: it changes something.
                yield from (pair for each in ast.walk(value) for pair in _passed(each))
            case ast.Lambda(body=body):
                calls = (each for each in ast.walk(body) if isinstance(each, ast.Call))
                changing = (each for each in calls if not self._is_action(dotted(each.func)))
                yield from (pair for each in changing for pair in _passed(each))
            case ast.Call(func=ast.Attribute(attr=name) as func):
                if name not in _TELLING.split() and not self._is_action(dotted(func)):
                    yield from _passed(node)
            case ast.Call(func=ast.Name(id="next")):
                yield from _passed(node)
            case ast.Delete(targets=targets):
                yield from ((_names(each)[:1], _expressions(each)) for each in targets)
            case _:
                targets, sources = _targets(node)
                is_added = isinstance(node, ast.AugAssign)
                changed = [each for each in targets if is_added or not _is_plain(each)]
                yield from ((_names(each), [*sources, *_expressions(each)]) for each in changed)

    def _only_tells(self, value: ast.expr) -> bool:
        """Return whether a statement is a call that changes no object of the script."""
        call = value.value if isinstance(value, ast.Await) else value
        if not isinstance(call, ast.Call):
            return False
        name, options = dotted(call.func), {each.arg for each in call.keywords}
        return self._is_action(name) or (name == "print" and "file" not in options)

    def _pass_arguments(self, nodes: Sequence[ast.AST]) -> None:
        """Add a call's arguments to the parameters of each function that the call names."""
        functions: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                    functions[name] += _parameters(node)
                case ast.ClassDef(bases=[_, *_], body=body):  # its base may call any method
                    for each in body:
                        self._put(_parameters(each), [_UNKNOWN])
                    functions[node.name] += _parameters(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    functions[node.name] += _parameters(node)
                    is_special = (
                        node.name.startswith("__") and node.name not in _USUAL_METHODS.split()
                    )
                    if is_special:  # an operator calls it
                        self._put(_parameters(node), [_UNKNOWN])
                case _:
                    pass
        for call in nodes:
            given = [call.func, *_given_to(call)] if isinstance(call, ast.Call) else []
            for value in given:
                name = getattr(value, "attr", getattr(value, "id", ""))
                is_lambda = isinstance(value, ast.Lambda)
                names = _parameters(value) if is_lambda else functions[name]
                others = [each for each in given if each is not value]
                is_method = isinstance(value, ast.Attribute)
                self._put(names, [*others, value.value] if is_method else others)


def _conditions(node: ast.AST) -> Sequence[ast.AST]:
    """Return the expressions that decide whether, or how often, nested statements run."""
    match node:
        case ast.For(iter=condition) | ast.AsyncFor(iter=condition) | ast.While(test=condition):
            leave = ast.Break | ast.Continue
            inner = [e for e in ast.walk(node) if isinstance(e, (ast.If, ast.Match))]
            ends = [e for e in inner if any(isinstance(each, leave) for each in ast.walk(e))]
            tests = (each.test if isinstance(each, ast.If) else each.subject for each in ends)
            return [condition, *tests]
        case ast.If(test=condition) | ast.Match(subject=condition):
            return [condition]
        case ast.Try(body=body):
            return body
        case ast.With(body=body, items=items) | ast.AsyncWith(body=body, items=items):
            # Its manager may swallow an exception, so that the rest of the body is left out.
            is_file = all(_opens(each.context_expr) for each in items)
            return [] if is_file else body
        case _:
            return []


def _conditions_within(node: ast.AST) -> Sequence[ast.AST]:
    """Return the expressions that decide whether an expression changes something."""
    match node:
        case ast.IfExp(test=test):
            return [test]
        case ast.BoolOp(values=values):
            return values[:-1]
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return [part for each in node.generators for part in (each.iter, *each.ifs)]
        case _:
            return []


def _opens(manager: ast.expr) -> bool:
    return isinstance(manager, ast.Call) and dotted(manager.func) in ("open", "io.StringIO")


def _is_hidden_way(node: ast.AST) -> bool:
    """Return whether a node lets the script change values in a way that its text does not show."""
    match node:
        case ast.Name(id=name) | ast.alias(name=name):
            return name in _HIDDEN_WAYS.split()
        case ast.Attribute(attr=name, ctx=ast.Store()) if name in ("stdout", "stderr"):
            return True
        case ast.Attribute(attr=name):
            return name in _HIDDEN_WAYS.split()
        case _:
            return False


def _objects_of(name: str, made_of: Mapping[str, Sequence[ast.AST]]) -> set[str]:
    """Return the names that may stand for an object of a name, the name itself included."""
    seen, todo = set[str](), [name]
    while todo:
        item = todo.pop()
        if item in seen:
            continue
        seen.add(item)
        for source in made_of.get(item, ()):
            if isinstance(source, _KEEPS_OBJECTS):
                todo += [each for each in _names(source) if each in made_of]
    return seen


def _targets(node: ast.AST) -> tuple[Sequence[ast.expr], Sequence[ast.expr]]:
    """Return the targets of an assignment or a loop, and the expressions assigned to them."""
    parts = _expressions(node)
    targets = [each for each in parts if isinstance(getattr(each, "ctx", 0), ast.Store)]
    return targets, [each for each in parts if each not in targets]


def _is_plain(target: ast.expr) -> bool:
    return isinstance(target, (ast.Name, ast.Tuple))


def _expressions(node: ast.AST) -> list[ast.expr]:
    return [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]


def _passed(node: ast.AST) -> Iterator[_Change]:
    """Yield the names in each part of a call, with the other parts: each may get into the names."""
    if isinstance(node, ast.Call):
        parts = [node.func, *_given_to(node)]
        for part in parts:
            yield _names(part), [each for each in parts if each is not part]


def _names(node: ast.AST) -> Sequence[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _parameters(node: ast.AST) -> Sequence[str]:
    return [each.arg for each in ast.walk(node) if isinstance(each, ast.arg)]


def _given_to(call: ast.Call) -> Sequence[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def arguments_of(call: ast.Call, parameters: Sequence[str]) -> Mapping[str, ast.expr]:
    """Return a call's arguments by normalised parameter name; ``*`` for all others."""
    given = dict(zip(map(letters_of_name, parameters), call.args, strict=False))
    given |= {letters_of_name(each.arg or "*"): each.value for each in call.keywords}
    spread = next((each for each in call.args if isinstance(each, ast.Starred)), None)
    return given if spread is None else {"*": spread}


def letters_of_name(name: str) -> str:
    """Convert a parameter's name for comparison: ``customerId`` equals ``customer_id``."""
    return name.replace("_", "").lower()


def dotted(node: ast.AST) -> str:
    """Return a dotted name such as ``mail.send``; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name) if inner := dotted(value):
            return f"{inner}.{name}"
        case _:
            return ""


def is_constant(node: ast.expr) -> bool:
    """Return whether an expression is a literal value, except ``...``."""
    try:
        return ast.literal_eval(node) is not ...
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
