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

# Builtins for which passing a tool as an argument uses the tool as a value.
_USE_ARGUMENTS = frozenset(
    {
        *("print", "str", "repr", "format", "ascii", "bool", "int", "float", "abs", "round"),
        *("len", "list", "tuple", "set", "frozenset", "dict", "sum", "min", "max", "sorted"),
        *("any", "all", "iter", "next", "enumerate", "reversed", "bytes", "setattr", "delattr"),
    }
)
# Builtins that also use each item of a collection that is passed to them.
_USE_ITEMS = frozenset({"print", "str", "repr", "format", "ascii"})
# Functions that call the function passed to them only when their result is iterated.
_LAZY_FUNCTIONS = frozenset(
    {
        *("map", "filter", "starmap", "accumulate", "takewhile", "dropwhile", "filterfalse"),
        *("groupby", "zip", "enumerate", "reversed", "iter", "chain", "cycle", "repeat", "islice"),
    }
)
# Lazy functions that models also write as a statement, meaning that it runs like a loop.
_MEANT_AS_LOOP = frozenset({"map", "filter"})
_MAX_NAMES = 12


@dataclass(frozen=True)
class _Use:
    """An expression that refers to a connection, an action or a plain tool."""

    label: str
    methods: Sequence[str]
    node: Any
    scope: Scope

    @property
    def is_connection(self) -> bool:
        return bool(self.methods)


def check_uses(tree: ast.Module, names: ToolNames) -> None:
    """Raise if a script uses a connection or action in any way but calling an action.

    Args:
        tree: The parsed script.
        names: The tool names in the script.

    Raises:
        ToolMisuseError: For the first misuse in the script.
    """
    _Uses(tree, names).check()


class _Uses:
    def __init__(self, tree: ast.Module, names: ToolNames) -> None:
        self._names = names
        self._tools = names.initial.tools
        self._loads = [(place.node, place.scope) for place, _ in names.syntax.loads]
        self._parents: dict[int, Any] = {}
        # The line and column of each misuse, and the error for it.
        self._errors: list[tuple[int, int, ToolMisuseError]] = []
        # The names in the script of functions that keep a passed function for a later call.
        #
        # Each is mapped to the function's original name, such as ``map``.
        self._deferring_functions = {word: word for word in _LAZY_FUNCTIONS & BUILTINS}
        self._module_names: set[str] = set()
        # The functions that the script defines: a mapping from name to node.
        self._own_functions: dict[str, Any] = {}
        self._lazy_calls: list[ast.Call] = []
        if not self._tools:
            return
        for node in ast.walk(tree):
            match node:
                case ast.ImportFrom(module="functools" | "itertools", names=aliases):
                    self._deferring_functions |= {
                        alias.asname or alias.name: alias.name for alias in aliases
                    }
                case ast.Import(names=aliases):
                    aliases_of_modules = (
                        a for a in aliases if a.name in ("functools", "itertools")
                    )
                    self._module_names |= {
                        alias.asname or alias.name for alias in aliases_of_modules
                    }
                case ast.FunctionDef(name=word) | ast.AsyncFunctionDef(name=word):
                    self._own_functions[word] = node
                case _:
                    pass
        self._lazy_calls += [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and node.args
            and self._deferring_function(node) in _LAZY_FUNCTIONS
        ]
        for parent in ast.walk(tree):
            for child in ast.iter_child_nodes(parent):
                self._parents[id(child)] = parent

    def check(self) -> None:
        pending_uses = list(self._uses_by_name()) if self._parents else []
        while pending_uses:
            pending_uses += self._check_use(pending_uses.pop())
        for node in self._lazy_calls:
            self._check_lazy_call(node)
        if self._errors:
            _, _, error = min(self._errors, key=lambda item: item[:2])
            raise error

    def _uses_by_name(self) -> Iterator[_Use]:
        """Yield the expressions that are just the name of a connection or plain tool."""
        for node, scope in self._loads:
            if node.id in self._tools and scope.find(node.id) is None:
                yield _Use(node.id, self._tools[node.id], node, scope)
        for place, _ in (*self._names.syntax.loads, *self._names.syntax.attributes):
            # ToolNames has replaced each other spelling of a tool by an item of the table TOOLS.
            expression: Any = place.current
            node = expression.value if isinstance(expression, ast.Attribute) else expression
            match node:
                case ast.Subscript(
                    value=ast.Name(id=table), slice=ast.Constant(value=str(word))
                ) if table == TOOLS and word in self._tools:
                    yield _Use(word, self._tools[word], node, place.scope)
                case _:
                    pass

    def _check_use(self, use: _Use) -> list[_Use]:
        """Record an error if an expression is misused; return the uses to check next.

        For example, an expression may be assigned to a variable, as in ``send = mail.send``. The
        uses to check next are then the reads of ``send``.
        """
        node = use.node
        while True:
            parent = self._parents.get(id(node))
            match parent:
                case ast.Attribute(attr=word) if use.is_connection or isinstance(
                    parent.ctx, ast.Store | ast.Del
                ):
                    return self._uses_of_attribute(use, parent, word)
                case ast.Call() if (
                    node in parent.args and self._deferring_function(parent) == "partial"
                ):
                    node = parent  # a partial of an action is used like the action
                case ast.Call() if (
                    node in parent.args and self._deferring_function(parent) in _LAZY_FUNCTIONS
                ):
                    return (
                        self._record_misuse(use, node) if self._is_unused(parent, use.scope) else []
                    )
                case ast.Call() if parent.func is node:
                    if not use.is_connection:
                        return []
                    if parent.args or parent.keywords:
                        return self._record_misuse(use, parent)
                    node = parent
                case ast.IfExp() if parent.test is not node:
                    node = parent
                case ast.BoolOp() if parent.values[-1] is node:
                    node = parent
                case ast.Tuple() | ast.List() | ast.Set() | ast.Dict() | ast.IfExp():
                    is_misused = (
                        self._is_dropped(parent)
                        or isinstance(parent, ast.IfExp)
                        or self._is_shown(parent)
                    )
                    return self._record_misuse(use, node) if is_misused else []
                case ast.Call(
                    func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(word))]
                ) if parent.args[0] is node and use.is_connection:
                    return self._uses_of_attribute(use, parent, word)
                case ast.NamedExpr(target=ast.Name(id=word)):
                    if self._needs_value(self._parents[id(parent)], parent):
                        return self._record_misuse(use, node)
                    return [
                        replace(use, node=parent),
                        *self._uses_of_alias(use, node, word, is_read=True),
                    ]
                case (
                    ast.Assign(targets=[ast.Name(id=word)])
                    | ast.AnnAssign(target=ast.Name(id=word))
                ) if parent.value is node:
                    return self._uses_of_alias(use, node, word)
                case _:
                    return self._record_misuse(use, node) if self._needs_value(parent, node) else []

    def _uses_of_attribute(self, use: _Use, parent: Any, word: str) -> list[_Use]:
        if isinstance(parent, ast.Attribute) and not isinstance(parent.ctx, ast.Load):
            return self._record_misuse(use, parent)
        if word.startswith("_"):
            return []
        return [_Use(f"{use.label}.{word}", (), parent, use.scope)]

    def _uses_of_alias(
        self, use: _Use, value: Any, word: str, *, is_read: bool = False
    ) -> list[_Use]:
        """Return the uses of a name to which the script assigns a tool.

        Empty if the script also binds the name to anything else.

        Args:
            use: The expression that refers to the tool.
            value: The node of the assigned value.
            word: The name.
            is_read: Whether the assignment itself has a value, as with ``:=``.
        """
        owner = use.scope.owner(word)
        places = [(node, scope) for node, scope in self._loads if node.id == word]
        if not places and not is_read:
            return self._record_misuse(use, value)
        bindings = owner.binds.get(word, [])
        if len(bindings) != 1 or bindings[0][0] is not value or owner.names.get(word) != {"data"}:
            return []
        return [
            _Use(use.label, use.methods, node, scope)
            for node, scope in places
            if scope.find(word) is owner and word not in self._tools
        ]

    def _check_lazy_call(self, node: ast.Call) -> None:
        """Record an error for an unused ``map`` or similar whose function calls tools.

        Without an iteration, none of these calls would be made.
        """
        function = node.args[0]
        inner = self._own_functions.get(function.id) if isinstance(function, ast.Name) else function
        if not isinstance(inner, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            return
        label = next(self._tools_in(inner), None)
        place = self._names.syntax.calls.get(id(node))
        if label is None or place is None:
            return
        word = self._deferring_function(node)
        is_statement = isinstance(self._parents.get(id(node)), ast.Expr)
        if is_statement and isinstance(inner, ast.Lambda) and word in _MEANT_AS_LOOP:
            return  # the rewriting makes this statement iterate its result
        if is_statement or self._is_unused(node, place.scope):
            message = (
                f"the result of {word}(…) is never iterated here, so no call of {label} is made: "
                f"loop over the result, or write list({word}(…))"
            )
            error = ToolMisuseError.at_node(node, message)
            self._errors.append((node.lineno, node.col_offset, error))

    def _tools_in(self, function: Any) -> Iterator[str]:
        """Yield the names of the actions and tools that a function of the script mentions."""
        for node in ast.walk(function):
            match node:
                case ast.Attribute(value=ast.Name(id=word), attr=attr) if self._tools.get(word):
                    yield f"{word}.{attr}"
                case ast.Name(id=word) if word in self._tools and not self._tools[word]:
                    yield word
                case _:
                    pass

    def _deferring_function(self, node: ast.Call) -> str:
        """Return the original name of a called function that keeps a passed function, else ``""``.

        For example, ``map`` keeps its function until the result is iterated.
        """
        match node.func:
            case ast.Name(id=word):
                return self._deferring_functions.get(word, "")
            case ast.Attribute(value=ast.Name(id=word), attr=attr) if word in self._module_names:
                return attr
            case _:
                return ""

    def _is_unused(self, node: ast.Call, scope: Scope) -> bool:
        """Return True if the script does not use the result of a call."""
        match self._parents.get(id(node)):
            case ast.Expr():
                return self._deferring_function(node) not in _MEANT_AS_LOOP
            case ast.Assign(targets=[ast.Name(id=word)]) | ast.AnnAssign(target=ast.Name(id=word)):
                owner = scope.owner(word)
                return owner.kind != "class" and not any(
                    place.id == word and inner.owner(word) is owner for place, inner in self._loads
                )
            case _:
                return False

    def _is_dropped(self, node: Any) -> bool:
        """Return True if a list, tuple, set or dict is a statement by itself, so it is not used."""
        while isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            node = self._parents.get(id(node))
        return isinstance(node, ast.Expr)

    def _is_shown(self, node: Any) -> bool:
        """Return True if a list, tuple, set or dict is printed, formatted or passed to a tool."""
        while isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            inner = node
            node = self._parents.get(id(inner))
            match node:
                case ast.FormattedValue():
                    return True
                case ast.Call(func=ast.Name(id=word)) if node.func is not inner:
                    return word in _USE_ITEMS or word in self._tools
                case ast.Call() if node.func is not inner:
                    return self._is_tool(node.func)
                case ast.keyword():
                    return self._is_tool(self._parents[id(node)].func)
                case _:
                    pass
        return False

    def _is_tool(self, function: Any) -> bool:
        """Return True if a called expression is a tool or an action."""
        while isinstance(function, ast.Attribute):
            function = function.value
        return isinstance(function, ast.Name) and function.id in self._tools

    def _needs_value(self, parent: Any, node: Any) -> bool:
        """Return True if the parent node uses the value of its child ``node``."""
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
                return node in args and word in _USE_ARGUMENTS and word in BUILTINS
            case ast.Call(func=ast.Attribute(value=ast.Constant()), args=args):
                return node in args  # "{}".format(mail.read)
            case _:
                return False

    def _record_misuse(self, use: _Use, node: Any) -> list[_Use]:
        message = misuse_message(use.label, use.methods)
        error = ToolMisuseError.at_node(node, message)
        self._errors.append((node.lineno, node.col_offset, error))
        return []


def misuse_message(label: str, methods: Sequence[str]) -> str:
    """Return an error message with the right use of a connection, action or plain tool.

    Args:
        label: The name of the object in the script, such as ``mail`` or ``mail.send``.
        methods: The actions of a connection; empty for an action or plain tool.
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
