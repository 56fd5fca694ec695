"""Refusal of scripts that use a tool as a value instead of calling it.

``mail("x")``, ``mail.subject = "x"``, ``mail.send`` without parentheses and ``f"{mail.unread}"``
call nothing, and the script would continue as if they had called the tool. Most misuses are found
before the script runs. A tool inside of a collection, as in ``print([mail.send])``, is only found
when the script shows or passes the collection: see ``_NoValue``.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from delf_sandbox.guest.names import ToolNames, normalized_name, tool_of_item
from delf_sandbox.guest.nodes import ToolMisuseError
from delf_sandbox.guest.scopes import CallPlace, Scope

# The nodes around an expression with which a script keeps a tool, or passes the tool on.
_PLACES_FOR_TOOLS = (
    *(ast.Assign, ast.AnnAssign, ast.Return, ast.Yield, ast.Lambda, ast.arguments, ast.arg),
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.withitem, ast.ExceptHandler),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
# Builtins, including exceptions, to which a script can pass a tool. All others need a plain value.
_BUILTINS_FOR_TOOLS = frozenset(
    {"callable", "classmethod", "dir", "getattr", "hasattr", "hash", "help", "id", "isinstance"}
    | {"property", "staticmethod", "type", "vars"}
    | {name for name in dir(builtins) if name.endswith(("Error", "Exception", "Warning", "Exit"))}
)
# Functions that call the function passed to them only when their result is iterated.
_LAZY_FUNCTIONS = frozenset(
    {
        *("map", "filter", "starmap", "accumulate", "takewhile", "dropwhile", "filterfalse"),
        *("groupby", "zip", "enumerate", "reversed", "iter", "chain", "cycle", "repeat", "islice"),
    }
)
# Lazy functions that models also write as a statement, as if the statement ran like a loop.
_REWRITTEN_AS_LOOP = frozenset({"map", "filter"})
_MAX_NAMES = 12


@dataclass(frozen=True)
class _Use:
    """An expression that refers to a connection, an action or a plain tool.

    Args:
        label: The name of the tool, such as ``mail.send``.
        methods: The actions of a connection; empty for an action or plain tool.
        node: The expression.
        scope: The scope of the expression.
        is_optional: Whether the expression may have another value, such as None.
    """

    label: str
    methods: Sequence[str]
    node: Any
    scope: Scope
    is_optional: bool = False

    @property
    def is_connection(self) -> bool:
        return bool(self.methods)


def check_uses(tree: ast.Module, names: ToolNames) -> None:
    """Raise if a script uses a tool as a value instead of calling it, as in ``mail.send + "!"``.

    The script may pass an action to its own function, as in ``retry(mail.send)``.

    Args:
        tree: The parsed script.
        names: The tool names in the script.

    Raises:
        ToolMisuseError: For the first misuse in the script.
    """
    if names.initial_names.tools:
        _Uses(tree, names).check()


class _Uses:
    """The uses of connections and actions in a script.

    A misuse is a use of a tool as a value. A call such as ``map(mail.send, names)`` whose result is
    unused is a misuse, too, because ``mail.send`` then never runs.

    Args:
        tree: The parsed script.
        names: The tool names in the script.
    """

    def __init__(self, tree: ast.Module, names: ToolNames) -> None:
        self._names = names
        self._syntax = names.syntax
        self._tools = names.initial_names.tools
        self._tool_calls = names.calls
        self._parents: dict[int, Any] = {}
        self._misuses: list[ToolMisuseError] = []
        # The name in the library for each imported name: ``{"join": "chain"}`` after ``from
        # itertools import chain as join``.
        self._original_name_by_local_name: dict[str, str] = {}
        # The names of the imported modules: ``it`` after ``import itertools as it``.
        self._module_names: set[str] = set()
        # The functions that the script defines: a mapping from name to node.
        self._functions_of_script: dict[str, Any] = {}
        for node in ast.walk(tree):
            self._read_import_or_function(node)
            for child in ast.iter_child_nodes(node):
                self._parents[id(child)] = node

    def _read_import_or_function(self, node: ast.AST) -> None:
        match node:
            case ast.ImportFrom(module="functools" | "itertools", names=aliases):
                for alias in aliases:
                    local_name = alias.asname or alias.name
                    self._original_name_by_local_name[local_name] = alias.name
            case ast.Import(names=aliases):
                for alias in aliases:
                    if alias.name in ("functools", "itertools"):
                        self._module_names.add(alias.asname or alias.name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self._functions_of_script[name] = node
            case _:
                pass

    def check(self) -> None:
        """Raise the error for the first misuse of a tool in the script, if there is any."""
        pending_uses = list(self._direct_uses())
        # The check of a use may find further uses, such as the reads of an alias of the tool. Check
        # each use once: in ``send = send if is_quiet else mail.send``, an alias leads to itself.
        visited: set[tuple[int, str]] = set()
        while pending_uses:
            use = pending_uses.pop()
            key = (id(use.node), use.label)
            if key not in visited:
                visited.add(key)
                pending_uses += self._check_use(use)
        for place in self._syntax.calls.values():
            self._check_lazy_call_of_function(place)
        if self._misuses:
            raise min(self._misuses, key=lambda error: (error.lineno, error.offset))

    def _direct_uses(self) -> Iterator[_Use]:
        """Yield the places at which the script uses the name of a connection or plain tool.

        For example, ``mail.send`` uses the name ``mail``.
        """
        # The names as the prompt spells them, such as ``mail``.
        for place, _ in self._syntax.loads:
            name = place.node.id
            if name in self._tools and place.scope.find(name) is None:
                yield _Use(name, self._tools[name], place.node, place.scope)
        # Other spellings: ``Mail`` is already replaced by ``TOOLS["mail"]``, and
        # ``tools.mail.send`` by ``TOOLS["mail"].send``.
        for place, _ in (*self._syntax.loads, *self._syntax.attributes):
            node: Any = place.current  # the expression that now stands at this place
            if isinstance(node, ast.Attribute):
                node = node.value
            name = tool_of_item(node)
            if name in self._tools:
                yield _Use(name, self._tools[name], node, place.scope)

    def _check_use(self, use: _Use) -> Sequence[_Use]:
        """Record an error if the script uses a tool as a value instead of calling the tool.

        Returns:
            The uses to check next. After ``send = mail.send``, these are the reads of ``send``.
        """
        node = self._outermost_expression(use)
        parent = self._parents.get(id(node))
        match parent:
            case ast.Attribute(attr=name, ctx=ast.Load()):  # ``mail.send``
                return self._uses_of_attribute(use, parent, name)
            # ``getattr(mail, "send")``
            case ast.Call(
                func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name))]
            ) if value is node:
                return self._uses_of_attribute(use, parent, name)
            # ``print(send := mail.send)`` uses the tool here, and at each read of ``send``.
            case ast.NamedExpr(target=ast.Name(id=name)):
                return [replace(use, node=parent), *self._uses_of_alias(use, node, name)]
            # ``send = mail.send``, after which the script reads ``send``
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if value is node and not self._is_unused(node, use.scope):
                return self._uses_of_alias(use, node, name)
            # ``rows = map(mail.send, names)`` sends nothing if the script never reads ``rows``.
            case ast.Call() if self._original_name_of(parent) in _LAZY_FUNCTIONS:
                self._check_lazy_call(parent, use.scope, use.label)
            case _ if not self._may_be_tool(use, node, parent):
                self._add_misuse(node, self._message_about(use))
            case _:
                pass
        return ()

    def _message_about(self, use: _Use) -> str:
        """Return the error message for a misuse; for an unknown action, with all action names."""
        connection, _, action = use.label.partition(".")
        action_names = self._tools[connection]
        if action and normalized_name(action) not in map(normalized_name, action_names):
            return f"there is no {use.label}; {misuse_message(connection, action_names)}"
        return misuse_message(use.label, use.methods)

    def _may_be_tool(self, use: _Use, node: Any, parent: Any) -> bool:
        """Return True if the script may use a tool in this place without calling the tool.

        For example, the script may pass ``mail.send`` to its own function or compare the action
        with None.

        Args:
            use: The use of the tool.
            node: The outermost expression whose value is the tool.
            parent: The node around the expression.
        """
        match parent:
            # Calling an action is right, calling a connection is wrong: ``mail("Oslo")``. For
            # ``mail().send(…)``, the node is ``mail()``, and its parent is an attribute.
            case ast.Call(func=function) if function is node:
                return not use.is_connection
            case ast.Call() if self._builtin_of(parent):
                return self._builtin_of(parent) in _BUILTINS_FOR_TOOLS
            case ast.Call():  # ``use(mail.send)``, but not ``mail.send(mail.read)``
                return id(parent) not in self._tool_calls
            case ast.keyword():  # ``use(tool=mail.send)``
                return id(self._parents[id(parent)]) not in self._tool_calls
            # ``if handler:`` after ``handler = mail.send if is_urgent else None``
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if test is node:
                return use.is_optional
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
                return use.is_optional
            case ast.Compare(ops=ops):  # ``mail.send is None``, but not ``mail.send == 1``
                return all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
            case ast.Subscript(slice=key):  # ``calls[mail.send]``, but not ``mail["send"]``
                return key is node
            # ``def read() -> mail.Message``, but not ``@mail.send``
            case ast.FunctionDef(returns=annotation) | ast.AsyncFunctionDef(returns=annotation):
                return annotation is node
            case _:
                return isinstance(parent, _PLACES_FOR_TOOLS) and not self._is_unused(
                    node, use.scope
                )

    def _outermost_expression(self, use: _Use) -> Any:
        """Return the largest expression whose value is the tool, such as ``x or mail.send``."""
        node = use.node
        while True:
            parent = self._parents.get(id(node))
            match parent:
                case ast.IfExp():  # ``mail.send if is_urgent else chat.send``
                    has_same_value = parent.test is not node
                case ast.BoolOp():  # ``send or mail.send``
                    has_same_value = parent.values[-1] is node
                case ast.Call() if node in parent.args:  # ``partial(mail.send, "Ann")``
                    has_same_value = self._original_name_of(parent) == "partial"
                case ast.Call(args=[], keywords=[]):  # ``mail()`` in ``mail().send(…)``
                    has_same_value = parent.func is node and use.is_connection
                case _:
                    has_same_value = False
            if not has_same_value:
                return node
            node = parent

    def _uses_of_attribute(self, use: _Use, node: Any, name: str) -> Sequence[_Use]:
        """Return the use of an action, as in ``mail.send`` or ``getattr(mail, "send")``.

        A private attribute is no action, nor is an attribute of a plain tool or of another action.
        """
        if name.startswith("_") or not use.is_connection:
            return ()
        return [_Use(f"{use.label}.{name}", methods=(), node=node, scope=use.scope)]

    def _uses_of_alias(self, use: _Use, value: Any, name: str) -> Sequence[_Use]:
        """Return a use of ``mail.send`` for each read of ``send`` after ``send = mail.send``.

        Return nothing if the script may also assign other values to the name ``send``.

        Args:
            use: The use of the tool in the assigned value.
            value: The node of the assigned value.
            name: The name, such as ``send``.
        """
        owner = use.scope.owner(name)
        # If ``mail`` and ``chat`` are both tools, then after ``mail = chat`` a read of ``mail`` can
        # mean either tool. ToolNames treats such names, so they have no uses here.
        if name in self._tools or not _is_only_value(value, owner, name):
            return ()
        # After ``send = mail.send if is_urgent else None``, ``send`` may also be None. A test such
        # as ``if send:`` is then no misuse.
        is_optional = use.is_optional or isinstance(value, (ast.IfExp, ast.BoolOp))
        return [
            replace(use, node=place.node, scope=place.scope, is_optional=is_optional)
            for place, _ in self._syntax.loads
            # Another function may have a variable of the same name, with another value.
            if place.node.id == name and place.scope.find(name) is owner
        ]

    def _check_lazy_call_of_function(self, place: CallPlace) -> None:
        """Check a call such as ``map(f, names)`` if ``f`` is a lambda or function of the script."""
        node = place.node
        if self._original_name_of(node) not in _LAZY_FUNCTIONS or not node.args:
            return
        function: Any = node.args[0]
        if isinstance(function, ast.Name):
            function = self._functions_of_script.get(function.id)
        if not isinstance(function, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            return
        label = next(self._tools_in(function), None)
        if label is not None:
            is_named = not isinstance(function, ast.Lambda)
            self._check_lazy_call(node, place.scope, label, is_named_function=is_named)

    def _check_lazy_call(
        self, node: ast.Call, scope: Scope, label: str, *, is_named_function: bool = False
    ) -> None:
        """Record an error if the result of ``map`` or similar is unused, so that no tool is called.

        Args:
            node: The call, such as ``map(mail.send, names)``.
            scope: The scope of the call.
            label: The tool that an iteration of the result would call.
            is_named_function: Whether a function of the script, and no lambda, calls the tool.
        """
        name = self._original_name_of(node)
        # The statement ``map(mail.send, names)`` is rewritten to a loop, which makes the calls. The
        # statement ``map(notify, names)`` with a function of the script is not rewritten.
        is_statement = isinstance(self._parents[id(node)], ast.Expr)
        is_loop = is_statement and name in _REWRITTEN_AS_LOOP and not is_named_function
        if self._is_unused(node, scope) and not is_loop:
            message = (
                f"the result of {name}(…) is never iterated here, so no call of {label} is made: "
                f"loop over the result, or write list({name}(…))"
            )
            self._add_misuse(node, message)

    def _tools_in(self, function: Any) -> Iterator[str]:
        """Yield the names of the actions and tools in a function of the script."""
        for node in ast.walk(function):
            match node:
                # A connection has actions, and a plain tool has none.
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if self._tools.get(name):
                    yield f"{name}.{attr}"
                case ast.Name(id=name) if name in self._tools and not self._tools[name]:
                    yield name
                case _:
                    pass

    def _original_name_of(self, node: ast.Call) -> str:
        """Return the original name of a called builtin, or function of functools or itertools.

        After ``from functools import partial as bind``, the original name of ``bind(…)`` is
        ``partial``. The name is empty for any other function.
        """
        match node.func:
            case ast.Name(id=name):
                return self._original_name_by_local_name.get(name) or self._builtin_of(node)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self._module_names:
                return attr
            case _:
                return ""

    def _builtin_of(self, node: ast.Call) -> str:
        """Return the name of a called builtin; empty for any other function."""
        place = self._syntax.calls.get(id(node))
        if place is None or not isinstance(node.func, ast.Name):
            return ""
        return node.func.id if self._names.is_builtin(node.func.id, place.scope) else ""

    def _is_unused(self, node: Any, scope: Scope) -> bool:
        """Return True if the script does not use the value of an expression.

        The value of the statement ``search()`` is unused. So is the value in ``rows = search()`` if
        the script never reads ``rows``.
        """
        match self._parents.get(id(node)):
            case ast.Expr():
                return True
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                owner = scope.owner(name)
                is_read = any(
                    place.node.id == name and place.scope.find(name) is owner
                    for place, _ in self._syntax.loads
                )
                # A class attribute may be read through the class.
                return not is_read and owner.kind != "class"
            # ``[search(), find()]``, if this collection is a whole statement
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict() as collection:
                return isinstance(self._parents.get(id(collection)), ast.Expr)
            case _:
                return False

    def _add_misuse(self, node: Any, message: str) -> None:
        self._misuses.append(ToolMisuseError.at_node(node, message))


def _is_only_value(value: Any, owner: Scope, name: str) -> bool:
    """Return True if the assignment of a value is the only binding of a name.

    Args:
        value: The node of the assigned value.
        owner: The scope that binds the name.
        name: The name.
    """
    assigned_values = [part.expression for part in owner.assigned_values.get(name, [])]
    is_only_assignment = len(assigned_values) == 1 and assigned_values[0] is value
    return is_only_assignment and owner.binding_kinds.get(name) == {"variable"}


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
    shown_calls = ", ".join(calls[:_MAX_NAMES])
    if len(calls) > _MAX_NAMES:
        shown_calls += f" and {len(calls) - _MAX_NAMES} more"
    return f"{label} is a connection, which does nothing by itself: call one of {shown_calls}"
