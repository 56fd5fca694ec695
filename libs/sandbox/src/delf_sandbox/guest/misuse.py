"""Refusal of scripts that use a tool as a value instead of calling it.

``mail("x")``, ``mail.subject = "x"``, ``mail.send`` without parentheses and ``f"{mail.unread}"``
call nothing, and the script would continue as if they had called the tool. Misuses are detected
before the script runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from delf_sandbox.guest.names import BUILTINS, ToolNames, tool_of_item
from delf_sandbox.guest.nodes import ToolMisuseError
from delf_sandbox.guest.scopes import Scope

# Builtins for which passing a tool as an argument uses the tool as a value.
_FUNCTIONS_THAT_NEED_VALUES = frozenset(
    {
        *("print", "str", "repr", "format", "ascii", "bool", "int", "float", "abs", "round"),
        *("len", "list", "tuple", "set", "frozenset", "dict", "sum", "min", "max", "sorted"),
        *("any", "all", "iter", "next", "enumerate", "reversed", "bytes", "setattr", "delattr"),
    }
)
# Builtins that also use each item of a collection that is passed to them.
_FUNCTIONS_THAT_SHOW_ITEMS = frozenset({"print", "str", "repr", "format", "ascii"})
# Functions that call the function passed to them only when their result is iterated.
_LAZY_FUNCTIONS = frozenset(
    {
        *("map", "filter", "starmap", "accumulate", "takewhile", "dropwhile", "filterfalse"),
        *("groupby", "zip", "enumerate", "reversed", "iter", "chain", "cycle", "repeat", "islice"),
    }
)
# Lazy functions that models also write as a statement, meaning that it runs like a loop.
_REWRITTEN_AS_LOOP = frozenset({"map", "filter"})
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


class _Misuse(NamedTuple):
    """The place of a misuse in the script, and the error for it."""

    line: int
    column: int
    error: ToolMisuseError


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
    """The uses of connections and actions in a script.

    A misuse is a use of a tool as a value. The unused result of a lazy function such as ``map`` is
    one, too: the function that is passed to ``map``, a tool or one that calls tools, never runs.

    Args:
        tree: The parsed script.
        names: The tool names in the script.
    """

    def __init__(self, tree: ast.Module, names: ToolNames) -> None:
        self._names = names
        self._tools = names.initial_names.tools
        self._name_reads = [(place.node, place.scope) for place, _ in names.syntax.loads]
        self._parents: dict[int, Any] = {}
        self._misuses: list[_Misuse] = []
        # The name in the library for each name in the script: ``{"join": "chain"}`` after ``from
        # itertools import chain as join``. Builtins such as ``map`` need no import.
        self._original_name_by_local_name = {name: name for name in _LAZY_FUNCTIONS & BUILTINS}
        # The names of the imported modules: ``it`` after ``import itertools as it``.
        self._module_names: set[str] = set()
        # The functions that the script defines: a mapping from name to node.
        self._functions_of_script: dict[str, Any] = {}
        self._calls_of_lazy_functions: list[ast.Call] = []
        if self._tools:
            self._read_imports_and_functions(tree)
            self._read_parents_and_lazy_calls(tree)

    def _read_imports_and_functions(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
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

    def _read_parents_and_lazy_calls(self, tree: ast.Module) -> None:
        """Find the parent of each node, and the calls such as ``map(…)``.

        Needs the imports, because ``join(…)`` may be a call of the imported ``chain``.
        """
        for parent in ast.walk(tree):
            if isinstance(parent, ast.Call):
                is_lazy = self._original_name_of(parent) in _LAZY_FUNCTIONS
                if is_lazy and parent.args:
                    self._calls_of_lazy_functions.append(parent)
            for child in ast.iter_child_nodes(parent):
                self._parents[id(child)] = parent

    def check(self) -> None:
        """Raise the error for the first place in the script that uses a tool without calling it.

        The check also covers calls of ``map`` and the like whose result is never iterated.
        """
        pending_uses = list(self._direct_uses()) if self._tools else []
        # The check of a use may find further uses, such as the reads of an alias of the tool. In
        # ``send = send if is_quiet else mail.send``, an alias leads to itself.
        visited: set[tuple[int, str]] = set()
        while pending_uses:
            use = pending_uses.pop()
            key = (id(use.node), use.label)
            if key not in visited:
                visited.add(key)
                pending_uses += self._check_use(use)
        for node in self._calls_of_lazy_functions:
            self._check_lazy_call(node)
        if self._misuses:
            first_misuse = min(self._misuses, key=lambda misuse: (misuse.line, misuse.column))
            raise first_misuse.error

    def _direct_uses(self) -> Iterator[_Use]:
        """Yield the reads of a connection or plain tool, such as ``mail`` in ``mail.send``."""
        # The names as the prompt spells them, such as ``mail``.
        for node, scope in self._name_reads:
            if node.id in self._tools and scope.find(node.id) is None:
                yield _Use(node.id, self._tools[node.id], node, scope)
        # Other spellings: ``Mail`` is already replaced by ``TOOLS["mail"]``, and
        # ``tools.mail.send`` by ``TOOLS["mail"].send``.
        for place, _ in (*self._names.syntax.loads, *self._names.syntax.attributes):
            node: Any = place.current  # the expression that now stands at this place
            if isinstance(node, ast.Attribute):
                node = node.value
            name = tool_of_item(node)
            if name in self._tools:
                yield _Use(name, self._tools[name], node, place.scope)

    def _check_use(self, use: _Use) -> list[_Use]:
        """Record an error if the script uses a tool as a value instead of calling the tool.

        Returns:
            The uses to check next. After ``send = mail.send``, these are the reads of ``send``.
        """
        node = self._outermost_expression(use)
        parent = self._parents.get(id(node))
        match parent:
            case ast.Attribute(attr=name):  # ``mail.send``
                return self._uses_of_attribute(use, attribute_node=parent, attribute_name=name)
            # ``getattr(mail, "send")``
            case ast.Call(
                func=ast.Name(id="getattr"), args=[value, ast.Constant(value=str(name))]
            ) if value is node:
                return self._uses_of_attribute(use, attribute_node=parent, attribute_name=name)
            # ``print(send := mail.send)`` uses the tool here, and at each read of ``send``.
            case ast.NamedExpr(target=ast.Name(id=name)):
                use_of_whole_expression = replace(use, node=parent)
                return [use_of_whole_expression, *self._uses_of_alias(use, node, name)]
            # ``send = mail.send`` is a misuse if the script never reads ``send``.
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if value is node:
                is_read = any(read.id == name for read, _ in self._name_reads)
                if is_read:
                    return self._uses_of_alias(use, node, name)
                self._record_misuse(use, node)
            case _ if self._is_misuse(use, node, parent):
                self._record_misuse(use, node)
            case _:
                pass
        return []

    def _is_misuse(self, use: _Use, node: Any, parent: Any) -> bool:
        """Return True if a tool must not stand at its place in the script without being called.

        Args:
            use: The use of the tool.
            node: The outermost expression whose value is the tool.
            parent: The node around the expression.
        """
        match parent:
            # Calling an action is right, calling a connection is wrong: ``mail("Oslo")``. For
            # ``mail().send(…)``, the node is ``mail()``, and its parent is an attribute.
            case ast.Call(func=function) if function is node:
                return use.is_connection
            # ``rows = map(mail.send, names)`` sends nothing if the script never reads ``rows``.
            case ast.Call() if self._is_argument_of_lazy_function(node, parent):
                return self._is_unused(parent, use.scope)
            # ``actions = [mail.send, mail.read]`` is right, ``print([mail.send])`` is wrong.
            case ast.Tuple() | ast.List() | ast.Set() | ast.Dict():
                return self._is_unused_collection(parent) or self._are_items_shown(parent)
            case _:
                return self._is_place_for_plain_value(node, parent)

    def _outermost_expression(self, use: _Use) -> Any:
        """Return the largest expression around a tool that still has the tool as its value."""
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

    def _is_argument_of_lazy_function(self, node: Any, function_call: ast.Call) -> bool:
        """Return True for an argument such as ``mail.send`` in ``map(mail.send, names)``.

        A lazy function calls the passed tool only when its result is iterated.
        """
        if node not in function_call.args:
            return False
        return self._original_name_of(function_call) in _LAZY_FUNCTIONS

    def _uses_of_attribute(
        self, use: _Use, *, attribute_node: Any, attribute_name: str
    ) -> list[_Use]:
        """Return the use of an action, as in ``mail.send`` or ``getattr(mail, "send")``.

        An assignment to the attribute is recorded as an error. A private attribute is no action,
        nor is an attribute of a plain tool or of another action.
        """
        if isinstance(attribute_node, ast.Attribute) and _is_assigned(attribute_node):
            self._record_misuse(use, attribute_node)
            return []
        if attribute_name.startswith("_") or not use.is_connection:
            return []
        label = f"{use.label}.{attribute_name}"
        return [_Use(label, methods=(), node=attribute_node, scope=use.scope)]

    def _uses_of_alias(self, use: _Use, value: Any, name: str) -> list[_Use]:
        """Return the reads of a name to which the script assigned a tool, as uses of that tool.

        Return nothing if the script may also assign other values to the name.

        Args:
            use: The use of the tool in the assigned value.
            value: The node of the assigned value.
            name: The name.
        """
        owner = use.scope.owner(name)
        # After ``mail = chat``, the name may mean either tool; ToolNames decides that.
        if name in self._tools or not _is_only_value(value, owner, name):
            return []
        uses: list[_Use] = []
        for node, scope in self._name_reads:
            # Another function may have a variable of the same name, with another value.
            is_same_variable = node.id == name and scope.find(name) is owner
            if is_same_variable:
                uses.append(replace(use, node=node, scope=scope))
        return uses

    def _check_lazy_call(self, node: ast.Call) -> None:
        """Record an error for an unused ``map`` or similar whose function calls tools.

        Without an iteration, none of these calls would be made.
        """
        function = node.args[0]
        if isinstance(function, ast.Name):
            function = self._functions_of_script.get(function.id)
        if not isinstance(function, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
            return
        label = next(self._tools_in(function), None)
        if label is not None and self._is_never_iterated(node, function):
            name = self._original_name_of(node)
            message = (
                f"the result of {name}(…) is never iterated here, so no call of {label} is made: "
                f"loop over the result, or write list({name}(…))"
            )
            self._add_misuse(node, message)

    def _is_never_iterated(self, node: ast.Call, function: ast.AST) -> bool:
        """Return True if the script does not iterate the result of a lazy call.

        Args:
            node: The lazy call, such as ``map(lambda x: send(x), names)``.
            function: The function of the script that is passed to the call.
        """
        is_statement = isinstance(self._parents.get(id(node)), ast.Expr)
        # The rewriting turns such a statement into a loop if the function is a lambda, but not if
        # it is a named function of the script.
        if is_statement and not isinstance(function, ast.Lambda):
            return True
        place = self._names.syntax.calls.get(id(node))
        return place is not None and self._is_unused(node, place.scope)

    def _tools_in(self, function: Any) -> Iterator[str]:
        """Yield the names of the actions and tools that a function of the script mentions."""
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
        """Return the original name of a called library function, such as ``partial`` or ``map``.

        The original name is the name in the library, which may differ from the name in the script
        after ``import … as``. An empty text stands for a function that is neither a lazy builtin
        nor a function of ``functools`` or ``itertools``.
        """
        match node.func:
            case ast.Name(id=name):
                return self._original_name_by_local_name.get(name, "")
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in self._module_names:
                return attr
            case _:
                return ""

    def _is_unused(self, node: ast.Call, scope: Scope) -> bool:
        """Return True if the script does not use the result of a call.

        The result of the statement ``search()`` is unused, and that of ``rows = search()`` if the
        script never reads ``rows``. The statement ``map(mail.send, names)`` is rewritten to a loop
        over the result, so that this result is used.
        """
        match self._parents.get(id(node)):
            case ast.Expr():
                return self._original_name_of(node) not in _REWRITTEN_AS_LOOP
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                owner = scope.owner(name)
                if owner.kind == "class":  # a class attribute, which may be read through the class
                    return False
                is_read = any(
                    read.id == name and reader.owner(name) is owner
                    for read, reader in self._name_reads
                )
                return not is_read
            case _:
                return False

    def _is_unused_collection(self, node: Any) -> bool:
        """Return True if a list, tuple, set or dict is a statement by itself, so it is not used."""
        while isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            node = self._parents.get(id(node))
        return isinstance(node, ast.Expr)

    def _are_items_shown(self, node: Any) -> bool:
        """Return True if a list, tuple, set or dict is printed, formatted or passed to a tool."""
        collection = node
        while isinstance(collection, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
            parent = self._parents.get(id(collection))
            match parent:
                case ast.FormattedValue():
                    return True
                case ast.Call(func=ast.Name(id=name)):
                    return name in _FUNCTIONS_THAT_SHOW_ITEMS or name in self._tools
                case ast.Call():
                    return self._is_tool(parent.func)
                case ast.keyword():
                    return self._is_argument_of_tool(parent)
                case _:  # in ``print([[mail]])``, go on with the outer list
                    collection = parent
        return False  # the script does something else with the outermost collection

    def _is_argument_of_tool(self, keyword: ast.keyword) -> bool:
        """Return True if a keyword argument is in a tool call, and not in a class statement."""
        parent = self._parents[id(keyword)]
        return isinstance(parent, ast.Call) and self._is_tool(parent.func)

    def _is_tool(self, function: Any) -> bool:
        """Return True if a called expression is a tool or an action."""
        while isinstance(function, ast.Attribute):
            function = function.value
        return isinstance(function, ast.Name) and function.id in self._tools

    def _is_place_for_plain_value(self, node: Any, parent: Any) -> bool:
        """Return True if a node stands where a script needs a value, and a tool makes no sense.

        Examples are ``mail.send + 1``, ``if mail.send:`` and the statement ``mail.send``.

        Args:
            node: The node.
            parent: The node around the node.
        """
        match parent:
            case ast.Expr() | ast.Await() | ast.FormattedValue() | ast.Starred() | ast.YieldFrom():
                return True
            case ast.BinOp() | ast.UnaryOp() | ast.AugAssign() | ast.BoolOp():
                return True
            case ast.If() | ast.IfExp() | ast.While() | ast.Assert():
                return parent.test is node
            case ast.comprehension():
                return parent.iter is node or node in parent.ifs
            case ast.For() | ast.AsyncFor():
                return parent.iter is node
            case ast.Match():
                return parent.subject is node
            case ast.Compare(ops=ops):  # ``mail.send == 1``, but not ``mail.send is None``
                compares_identities = all(isinstance(op, ast.Is | ast.IsNot) for op in ops)
                return not compares_identities
            case ast.Subscript():
                return parent.value is node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return node in parent.decorator_list or node in getattr(parent, "bases", ())
            case ast.Call():
                return node in parent.args and self._requires_results(parent.func)
            case ast.keyword():
                return self._is_argument_of_tool(parent)
            case _:
                return False

    def _requires_results(self, function: ast.expr) -> bool:
        """Return True for a function such as ``len``, to which no tool can be passed."""
        match function:
            case ast.Name(id=name) if name in _FUNCTIONS_THAT_NEED_VALUES:
                return True
            case ast.Attribute(value=ast.Constant()):  # ``"{}".format(mail.read)``
                return True
            case _:
                return self._is_tool(function)  # ``mail.send(mail.read)``

    def _record_misuse(self, use: _Use, node: Any) -> None:
        self._add_misuse(node, misuse_message(use.label, use.methods))

    def _add_misuse(self, node: Any, message: str) -> None:
        error = ToolMisuseError.at_node(node, message)
        self._misuses.append(_Misuse(node.lineno, node.col_offset, error))


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


def _is_assigned(attribute: ast.Attribute) -> bool:
    """Return whether a statement assigns or deletes an attribute."""
    return not isinstance(attribute.ctx, ast.Load)


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
