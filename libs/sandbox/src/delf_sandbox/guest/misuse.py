"""Refusal of scripts that use a tool as a value instead of calling it.

``mail("x")``, ``mail.subject = "x"``, ``mail.send`` without parentheses and ``f"{mail.unread}"``
call nothing, and the script would continue as if they had called the tool. Misuses are detected
before the script runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from delf_sandbox.guest.names import BUILTINS, ToolNames
from delf_sandbox.guest.nodes import TOOLS, ToolMisuseError
from delf_sandbox.guest.scopes import Scope

_TAKING_VALUES = frozenset(
    {
        *("print", "str", "repr", "format", "ascii", "bool", "int", "float", "abs", "round"),
        *("len", "list", "tuple", "set", "frozenset", "dict", "sum", "min", "max", "sorted"),
        *("any", "all", "iter", "next", "enumerate", "reversed", "bytes", "setattr", "delattr"),
    }
)
"""Builtins that use the value of their arguments."""
_SHOWING = frozenset({"print", "str", "repr", "format", "ascii"})
"""Builtins that also use the items of a list argument."""
_LAZY = frozenset(
    {
        *("map", "filter", "starmap", "accumulate", "takewhile", "dropwhile", "filterfalse"),
        *("groupby", "zip", "enumerate", "reversed", "iter", "chain", "cycle", "repeat", "islice"),
    }
)
"""Functions that call their argument lazily, when the result is iterated."""
_RUN_ALONE = frozenset({"map", "filter"})
"""Lazy functions that scripts mean to run even as a bare statement."""
_MAX_NAMES = 12


@dataclass(frozen=True)
class _Use:
    """An expression that refers to a connection, an action or a tool."""

    label: str
    methods: Sequence[str]
    node: Any
    scope: Scope

    @property
    def is_connection(self) -> bool:
        return bool(self.methods)


def check_uses(tree: ast.Module, names: ToolNames) -> None:
    """Raise if a script uses a connection or action otherwise than by calling an action.

    Args:
        tree: The parsed script.
        names: The tool names in the script.

    Raises:
        ToolMisuseError: For the first such use.
    """
    _Uses(tree, names).check()


class _Uses:
    def __init__(self, tree: ast.Module, names: ToolNames) -> None:
        self._names = names
        self._tools = names.initial.tools
        self._loads = [(place.node, place.scope) for place, _ in names.seen.loads]
        self._parents: dict[int, Any] = {}
        self._found: list[tuple[int, int, ToolMisuseError]] = []
        self._makers = {word: word for word in _LAZY & BUILTINS}
        """Functions that store an action for a later call, with the function of each."""
        self._modules: set[str] = set()
        self._own: dict[str, Any] = {}
        """The functions that the script defines, by name."""
        self._lazy: list[ast.Call] = []
        if not self._tools:
            return
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module="functools" | "itertools", names=aliases):
                    self._makers |= {alias.asname or alias.name: alias.name for alias in aliases}
                case ast.Import(names=aliases):
                    aliases_of_modules = (
                        a for a in aliases if a.name in ("functools", "itertools")
                    )
                    self._modules |= {alias.asname or alias.name for alias in aliases_of_modules}
                case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word):
                    self._own[word] = node
                case _:
                    pass
        self._lazy += [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and node.args and self._builder_name(node) in _LAZY
        ]
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[id(child)] = parent

    def check(self) -> None:
        waiting = list(self._named()) if self._parents else []
        while waiting:
            waiting += self._check_use(waiting.pop())
        for node in self._lazy:
            self._check_lazy(node)
        if self._found:
            raise min(self._found, key=lambda item: item[:2])[2]

    def _named(self) -> Iterator[_Use]:
        """Yield expressions that consist only of a connection's or tool's name."""
        for node, scope in self._loads:
            if node.id in self._tools and scope.find(node.id) is None:
                yield _Use(node.id, self._tools[node.id], node, scope)
        for place, _ in (*self._names.seen.loads, *self._names.seen.attributes):
            expression: Any = place.current  # other spellings were replaced before
            node = expression.value if isinstance(expression, ast.Attribute) else expression
            match node:
                case ast.Subscript(
                    value=ast.Name(id=table), slice=ast.Constant(value=str(word))
                ) if table == TOOLS and word in self._tools:
                    yield _Use(word, self._tools[word], node, place.scope)
                case _:
                    pass

    def _check_use(self, use: _Use) -> list[_Use]:
        """Raise for a misuse, or return further expressions that refer to the same object."""
        node = use.node
        while True:
            parent = self._parents.get(id(node))
            match parent:
                case ast.Attribute(attr=word) if use.is_connection or isinstance(
                    parent.ctx, ast.Store | ast.Del
                ):
                    return self._attribute(use, parent, word)
                case ast.Call() if node in parent.args and self._builder_name(parent) == "partial":
                    node = parent  # a partial of an action is used like the action
                case ast.Call() if node in parent.args and self._builder_name(parent) in _LAZY:
                    return self._refuse(use, node) if self._is_unused(parent, use.scope) else []
                case ast.Call() if parent.func is node:
                    if not use.is_connection:
                        return []
                    if parent.args or parent.keywords:
                        return self._refuse(use, parent)
                    node = parent
                case ast.IfExp() if parent.test is not node:
                    node = parent
                case ast.BoolOp() if parent.values[-1] is node:
                    node = parent
                case ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.IfExp():
                    is_lost = self._is_dropped(parent) or isinstance(parent, ast.IfExp)
                    is_lost = is_lost or self._is_shown(parent)
                    return self._refuse(use, node) if is_lost else []
                case ast.Call(
                    func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(word))]
                ) if parent.args[0] is node and use.is_connection:
                    return self._attribute(use, parent, word)
                case ast.NamedExpr(target=ast.Name(id=word)):
                    if self._needs_value(self._parents[id(parent)], parent):
                        return self._refuse(use, node)
                    return [
                        replace(use, node=parent),
                        *self._aliases(use, node, word, is_read=True),
                    ]
                case (
                    ast.Assign(targets=[ast.Name(id=word)])
                    | ast.AnnAssign(target=ast.Name(id=word))
                ) if parent.value is node:
                    return self._aliases(use, node, word)
                case _:
                    return self._refuse(use, node) if self._needs_value(parent, node) else []

    def _attribute(self, use: _Use, parent: Any, word: str) -> list[_Use]:
        if isinstance(parent, ast.Attribute) and not isinstance(parent.ctx, ast.Load):
            return self._refuse(use, parent)
        if word.startswith("_"):
            return []
        return [_Use(f"{use.label}.{word}", (), parent, use.scope)]

    def _aliases(self, use: _Use, value: Any, word: str, *, is_read: bool = False) -> list[_Use]:
        """Return the uses of a name that is only ever assigned this tool.

        Args:
            use: The use of the tool.
            value: The assigned value.
            word: The name.
            is_read: Whether the assignment is also an expression, as with ``:=``.
        """
        owner = use.scope.owner(word)
        places = [(node, scope) for node, scope in self._loads if node.id == word]
        if not places and not is_read:
            return self._refuse(use, value)
        bindings = owner.binds.get(word, [])
        if len(bindings) != 1 or bindings[0][0] is not value or owner.names.get(word) != {"data"}:
            return []
        return [
            _Use(use.label, use.methods, node, scope)
            for node, scope in places
            if scope.find(word) is owner and word not in self._tools
        ]

    def _check_lazy(self, node: ast.Call) -> None:
        """Refuse an unused ``map`` or similar over a function with calls: it makes none."""
        function = node.args[0]
        inner = self._own.get(function.id) if isinstance(function, ast.Name) else function
        if not isinstance(inner, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            return
        label = next(self._called_in(inner), None)
        is_run = isinstance(inner, ast.Lambda) and self._builder_name(node) in _RUN_ALONE
        is_alone = isinstance(self._parents.get(id(node)), ast.Expr)
        place = self._names.seen.calls.get(id(node))
        if label is None or place is None or (is_alone and is_run):
            return
        if is_alone or self._is_unused(node, place.scope):
            word = self._builder_name(node)
            message = (
                f"nothing goes through what {word}(…) gives here, so no call of {label} is made: "
                f"loop over it, or write list({word}(…))"
            )
            error = ToolMisuseError.about(node, message)
            self._found.append((node.lineno, node.col_offset, error))

    def _called_in(self, function: Any) -> Iterator[str]:
        """Yield the actions and tools that a script's function refers to."""
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id=word), attr=attr) if self._tools.get(word):
                    yield f"{word}.{attr}"
                case ast.Name(id=word) if word in self._tools and not self._tools[word]:
                    yield word
                case _:
                    pass

    def _builder_name(self, node: ast.Call) -> str:
        """Return the name of the higher-order function, such as ``partial``, that a call uses."""
        match node.func:
            case ast.Name(id=word):
                return self._makers.get(word, "")
            case ast.Attribute(value=ast.Name(id=word), attr=attr) if word in self._modules:
                return attr
            case _:
                return ""

    def _is_unused(self, node: ast.Call, scope: Scope) -> bool:
        """Return True if nothing iterates the result of a call."""
        match self._parents.get(id(node)):
            case ast.Expr():
                return self._builder_name(node) not in _RUN_ALONE
            case ast.Assign(targets=[ast.Name(id=word)]) | ast.AnnAssign(target=ast.Name(id=word)):
                owner = scope.owner(word)
                return owner.kind != "class" and not any(
                    place.id == word and inner.owner(word) is owner for place, inner in self._loads
                )
            case _:
                return False

    def _is_dropped(self, node: Any) -> bool:
        """Return True if a value is in a list, tuple, set or dict that the script does not use."""
        while isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            node = self._parents.get(id(node))
        return isinstance(node, ast.Expr)

    def _is_shown(self, node: Any) -> bool:
        """Return True if a list, set or dict is printed, formatted or passed to a tool."""
        while isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            node, inner = self._parents.get(id(node)), node
            match node:
                case ast.FormattedValue():
                    return True
                case ast.Call(func=ast.Name(id=word)) if node.func is not inner:
                    return word in _SHOWING or word in self._tools
                case ast.Call() if node.func is not inner:
                    return self._is_tool(node.func)
                case ast.keyword():
                    return self._is_tool(self._parents[id(node)].func)
                case _:
                    pass
        return False

    def _is_tool(self, function: Any) -> bool:
        """Return True if the called function is a tool or action."""
        while isinstance(function, ast.Attribute):
            function = function.value
        return isinstance(function, ast.Name) and function.id in self._tools

    def _needs_value(self, parent: Any, node: Any) -> bool:
        """Return True if an expression uses the value of one of its parts."""
        match parent:
            case ast.Expr() | ast.Await() | ast.FormattedValue() | ast.Starred() | ast.YieldFrom():
                return True
            case ast.BinOp() | ast.UnaryOp() | ast.AugAssign() | ast.BoolOp():
                return True
            case ast.If() | ast.While() | ast.Assert():
                return parent.test is node
            case ast.comprehension():
                return parent.iter is node or node in parent.ifs
            case ast.For() | ast.AsyncFor():
                return parent.iter is node
            case ast.Match():
                return parent.subject is node
            case ast.Compare(ops=ops):
                return not all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
            case ast.Subscript():
                return parent.value is node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return node in parent.decorator_list or node in getattr(parent, "bases", ())
            case ast.Call() if self._is_tool(parent.func):
                return node in parent.args
            case ast.keyword():
                return self._is_tool(self._parents[id(parent)].func)
            case ast.Call(func=ast.Name(id=word), args=args):
                return node in args and word in _TAKING_VALUES and word in BUILTINS
            case ast.Call(func=ast.Attribute(value=ast.Constant()), args=args):
                return node in args  # "{}".format(mail.read)
            case _:
                return False

    def _refuse(self, use: _Use, node: Any) -> list[_Use]:
        message = misuse_message(use.label, use.methods)
        error = ToolMisuseError.about(node, message)
        self._found.append((node.lineno, node.col_offset, error))
        return []


def misuse_message(label: str, methods: Sequence[str]) -> str:
    """Describe the right use of a connection, action or tool, for an error message.

    Args:
        label: The name.
        methods: The actions, if it is a connection.
    """
    if not methods:
        return f"{label} is named here and not called: write {label}(…)"
    calls = [f"{label}.{method}(…)" for method in methods]
    if len(calls) == 1:
        return f"{label} is a connection, which does nothing by itself: call {calls[0]}"
    rest_note = f" and {len(calls) - _MAX_NAMES} more" if calls[_MAX_NAMES:] else ""
    shown_calls = ", ".join(calls[:_MAX_NAMES])
    return (
        f"{label} is a connection, which does nothing by itself: "
        f"call one of {shown_calls}{rest_note}"
    )
