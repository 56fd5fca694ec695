"""Analysis of a script's functions: which are async, and what their calls return."""

from __future__ import annotations

import ast
import enum
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from delf_sandbox.guest.names import ToolNames, normalized_name
from delf_sandbox.guest.nodes import AmbiguousError
from delf_sandbox.guest.scopes import FUNCTIONS_TO_AWAIT, CallPlace, FunctionNode, Scope


class ResultKind(enum.Enum):
    """The kind of result that a call has."""

    TOOL = enum.auto()
    """The result of a tool call."""
    COROUTINE = enum.auto()
    """A coroutine, the result of an async function."""
    ASYNC_GENERATOR = enum.auto()
    PLAIN = enum.auto()
    """A value that is neither awaitable nor an async generator."""
    MAYBE_AWAITABLE = enum.auto()
    """Any result, but probably an awaitable."""
    UNKNOWN = enum.auto()
    """Any result."""


AWAITED_KINDS = frozenset({ResultKind.TOOL, ResultKind.COROUTINE})
"""The kinds of results that are certainly awaitable."""


class Functions:
    """The functions of a script, and what their calls return.

    A plain function that calls tools is made async if the script only calls it directly.

    Args:
        names: The tool names in the script.
        await_everywhere: Whether ``await`` is allowed in every scope.
    """

    def __init__(self, names: ToolNames, *, await_everywhere: bool = False) -> None:
        self._await_everywhere = await_everywhere
        self.syntax = names.syntax
        self.initial_names = names.initial_names
        """The names that are defined when the script starts, such as those of tools."""
        self._tool_names = names
        self.is_builtin = names.is_builtin
        # If the object of a method is unknown, a method with the name of an action may be a tool.
        self._normalized_action_names = {
            normalized_name(action_name)
            for action_names in self.initial_names.tools.values()
            for action_name in action_names
        }
        # targets() finds the functions of a call in the next two mappings.
        self.by_scope_and_name: dict[tuple[int, str], list[Scope]] = {}
        """The functions of the script that are not methods.

        The key is a pair: the ``id()`` of the scope that binds the function's name, and the name.
        """
        # Methods are found by their names alone, because the class of an object is unknown.
        self._methods_by_name: dict[str, list[Scope]] = {}
        for scope in self.syntax.functions:
            self._index_function(scope)
        self.calls_of: dict[int, list[CallPlace]] = {}
        """The calls that may call each function, by the ``id()`` of the function's scope."""
        for place in self.syntax.calls.values():
            for scope in self.targets(place.node.func, place.scope):
                self.calls_of.setdefault(id(scope), []).append(place)
        self.returning_awaitables: set[int] = set()
        """The functions that may return an awaitable, by the ``id()`` of their scopes.

        :class:`DeferredCalls` finds them.
        """
        self.made_async: set[int] = set()
        """The plain functions that the rewriting makes async, by the ``id()`` of their scopes."""
        self._find_functions_to_make_async()

    def _index_function(self, scope: Scope) -> None:
        """Add a function to the mappings by which calls find their functions."""
        node = scope.node
        parent = scope.parent
        if parent is None or not isinstance(node, FunctionNode):  # a lambda has no name
            return
        if parent.kind == "class":
            # A method is found by its name alone, because the class of an object is unknown.
            self._methods_by_name.setdefault(node.name, []).append(scope)
        else:
            # After ``global name``, for example, the binding scope is not the parent.
            binding_scope = parent.owner(node.name)
            key = (id(binding_scope), node.name)
            self.by_scope_and_name.setdefault(key, []).append(scope)

    def is_async(self, scope: Scope) -> bool:
        """Return True if a function is async in the script, or is made async by the rewriting."""
        return isinstance(scope.node, ast.AsyncFunctionDef) or id(scope) in self.made_async

    def can_await(self, scope: Scope) -> bool:
        """Return True if ``await`` is allowed in a scope."""
        function = scope.function_scope
        if self._await_everywhere or function.kind == "module":
            return True
        return function.kind == "function" and self.is_async(function)

    def targets(self, function: ast.expr, scope: Scope) -> Sequence[Scope]:
        """Return the scopes of the script's functions that an expression may call.

        For ``send`` in ``send(1)``, these are the functions with this name that are visible in
        ``scope``. For ``self.send``, these are all methods with this name, because the type of the
        object is unknown.
        """
        match function:
            case ast.Name(id=word):
                owner = scope.find(word)
                if owner is not None:
                    return self.by_scope_and_name.get((id(owner), word), ())
                return ()
            case ast.Attribute(attr=method):
                return self._methods_by_name.get(method, ())
            case _:
                return ()

    def _find_functions_to_make_async(self) -> None:
        """Add the functions that the rewriting makes async to ``made_async``.

        A non-async function is made async if it has to await something and can be made async.
        """
        # The names that the script reads without a call, such as ``f`` in ``map(f, items)``. Each
        # name is paired with the ``id()`` of the scope that binds the name.
        names_used_as_values: set[tuple[int, str]] = set()
        for place, is_called in self.syntax.loads:
            if not is_called:
                name = place.node.id
                binding_scope = place.scope.find(name)
                names_used_as_values.add((id(binding_scope), name))
        functions_that_may_be_async = {
            id(scope)
            for scope in self.syntax.functions
            if self._may_be_async(scope, names_used_as_values)
        }
        # Repeat until nothing is added, because the callers of each function that becomes async
        # have to await its calls.
        while True:
            functions_to_make_async = self._functions_that_await() & functions_that_may_be_async
            if functions_to_make_async <= self.made_async:
                return
            self.made_async |= functions_to_make_async

    def _may_be_async(
        self, scope: Scope, names_used_as_values: Collection[tuple[int, str]]
    ) -> bool:
        """Return True if a plain function can become async without breaking any use of it.

        Args:
            scope: The scope of the function.
            names_used_as_values: The names that the script reads without a call, each as a pair
                with the ``id()`` of the scope that binds the name.
        """
        node = scope.node
        parent = scope.parent
        if not isinstance(node, ast.FunctionDef) or parent is None or parent.kind == "class":
            return False
        # Making a generator or a decorated function async would change the result for every
        # caller.
        if scope.is_generator or node.decorator_list:
            return False
        owner = parent.owner(node.name)
        # The script must not assign something else to the name, too, as in ``send = print``.
        if owner.binding_kinds.get(node.name) != {"function"}:
            return False
        # Of two definitions, such as in both branches of an ``if``, either may be called.
        if len(self.by_scope_and_name[id(owner), node.name]) > 1:
            return False
        return (id(owner), node.name) not in names_used_as_values

    def _functions_that_await(self) -> set[int]:
        """Return the ``id()`` of each function that awaits, or calls a tool or async function."""
        calls = self.syntax.calls.values()
        blocks = [*self.syntax.loops, *self.syntax.contexts]
        awaited_calls = [place for place in calls if self.result_kind(place) in AWAITED_KINDS]
        async_blocks = [place for place in blocks if is_async_node(place.node)]
        awaiting_places = [*awaited_calls, *async_blocks, *self.syntax.awaits]
        return {id(place.scope.function_scope) for place in awaiting_places}

    def result_kind(self, place: CallPlace) -> ResultKind:
        """Return what kind of result a call has."""
        if id(place.node) in self._tool_names.calls:
            if id(place.node) in self._tool_names.uncertain:
                return ResultKind.MAYBE_AWAITABLE
            return ResultKind.TOOL
        function = place.node.func
        scope = place.scope
        asyncio_name = self.syntax.asyncio_function(function, scope)
        if asyncio_name is not None:
            must_await = asyncio_name in FUNCTIONS_TO_AWAIT
            return ResultKind.COROUTINE if must_await else ResultKind.PLAIN
        match function:
            case ast.Name(id=word):
                return self.result_kind_of_name(word, scope)
            case ast.Attribute(value=ast.Name(id=word), attr=method):
                owner = scope.find(word)
                # A name that the script binds only by imports is taken for a module, such as
                # ``math``. The functions of ``asyncio`` are handled above.
                is_module = owner is not None and owner.binding_kinds[word] == {"import"}
                if is_module:
                    return ResultKind.PLAIN
                return self._result_kind_of_method(method)
            case ast.Attribute(value=ast.Constant()):  # such as ``", ".join(…)``
                return ResultKind.PLAIN
            case ast.Attribute(attr=method):
                return self._result_kind_of_method(method)
            case _:
                return ResultKind.UNKNOWN

    def result_kind_of_name(self, word: str, scope: Scope) -> ResultKind:
        """Return the kind of result of calling a name."""
        owner = scope.find(word)
        if owner is None:
            if self.initial_names.is_async(word):
                return ResultKind.COROUTINE
            if self.is_builtin(word, scope):
                return ResultKind.PLAIN
            return ResultKind.UNKNOWN
        binding_kinds = owner.binding_kinds[word]
        if binding_kinds == {"class"}:
            return ResultKind.PLAIN
        # After ``word = value``, for example, only the running script shows what is called.
        if binding_kinds != {"function"}:
            return ResultKind.UNKNOWN
        functions = self.by_scope_and_name.get((id(owner), word), ())
        return _common(self._result_kind_of_function(function) for function in functions)

    def _result_kind_of_method(self, method: str) -> ResultKind:
        """Return the kind of result of calling a method; the type of the object is unknown.

        The result is probably awaitable if an action or an async method has the same name.
        """
        if normalized_name(method) in self._normalized_action_names:
            return ResultKind.MAYBE_AWAITABLE
        script_methods = self._methods_by_name.get(method, ())
        if any(map(self.is_async, script_methods)):
            return ResultKind.MAYBE_AWAITABLE
        return ResultKind.UNKNOWN

    def _result_kind_of_function(self, function: Scope) -> ResultKind:
        """Return the kind of result that a call of this function of the script has."""
        # A decorator may replace the function.
        if function.node.decorator_list:
            return ResultKind.MAYBE_AWAITABLE if self.is_async(function) else ResultKind.UNKNOWN
        if self.is_async(function):
            return ResultKind.ASYNC_GENERATOR if function.is_generator else ResultKind.COROUTINE
        if id(function) in self.returning_awaitables:
            return ResultKind.UNKNOWN
        return ResultKind.PLAIN

    def raise_if_any_or_all_may_skip_write_action(self) -> None:
        """Raise for a script such as ``any(mail.send(name) for name in names)``.

        ``any`` stops at the first true item, and ``all`` at the first false one, so some of the
        calls of a write action would silently not be made.

        Raises:
            AmbiguousError: If the script passes calls of a write action to ``any`` or ``all``.
        """
        if not self.initial_names.write_actions:
            return
        for place in self.syntax.calls.values():
            function = place.node.func
            arguments = place.node.args
            if not isinstance(function, ast.Name) or function.id not in ("any", "all"):
                continue
            if not arguments or not self.is_builtin(function.id, place.scope):
                continue
            label = self.write_action_for_each_item(arguments[0])
            if label is not None:
                first = "true" if function.id == "any" else "false"
                raise AmbiguousError.at_node(
                    place.node,
                    f"{function.id}() stops at the first {first} result, so not every "
                    f"{label} would be made: make the calls in a list or a loop first",
                )

    def write_action_for_each_item(self, node: Any) -> str | None:
        """Return a write action that a generator or ``map`` calls for each item, if any."""
        match node:
            case ast.GeneratorExp():
                return self.write_action_in(self.syntax.scopes[id(node)])
            case ast.Call(func=ast.Name(id="map" | "filter"), args=[ast.Lambda() as function, *_]):
                return self.write_action_in(self.syntax.scopes[id(function)])
            case ast.Call(func=ast.Name(id="map" | "filter"), args=[argument, *_]):
                label = label_of(argument)
                if label in self.initial_names.write_actions:
                    return label
                return self._write_action_of_functions_named(label)
            case _:
                return None

    def _write_action_of_functions_named(self, name: str | None) -> str | None:
        """Return the first write action that a function with this name calls; None if none does.

        Functions of all scopes are searched.
        """
        for (_, function_name), definitions in self.by_scope_and_name.items():
            if function_name == name:
                for definition in definitions:
                    write_action = self.write_action_in(definition)
                    if write_action is not None:
                        return write_action
        return None

    def write_action_in(self, scope: Scope) -> str | None:
        """Return a write action, such as ``mail.send``, that the code in a scope calls, if any.

        Calls in inner scopes count, because this analysis does not see whether an inner scope runs,
        for example a lambda that is passed to ``map``. Calls in the functions that the scope calls
        count, too.
        """
        pending_scopes = [scope]
        visited: set[int] = set()
        while pending_scopes:
            current = pending_scopes.pop()
            if id(current) in visited:
                continue
            visited.add(id(current))
            for place in self._calls_in_scopes.get(id(current), ()):
                label = self._tool_names.calls.get(id(place.node))
                if label in self.initial_names.write_actions:
                    return label
                pending_scopes += self.targets(place.node.func, place.scope)
        return None

    @functools.cached_property
    def _calls_in_scopes(self) -> Mapping[int, Sequence[CallPlace]]:
        """The calls in each scope, and in the scopes inside it, by the ``id()`` of the scope."""
        calls: dict[int, list[CallPlace]] = {}
        for place in self.syntax.calls.values():
            for scope in enclosing_scopes(place.scope):
                calls.setdefault(id(scope), []).append(place)
        return calls


def enclosing_scopes(scope: Scope) -> Iterator[Scope]:
    """Yield a scope and its enclosing scopes, innermost first."""
    current: Scope | None = scope
    while current is not None:
        yield current
        current = current.parent


def is_async_node(node: Any) -> bool:
    """Return True for an ``async for``, an ``async with`` and a loop of an async comprehension."""
    return isinstance(node, (ast.AsyncFor, ast.AsyncWith)) or bool(getattr(node, "is_async", 0))


def label_of(function: Any) -> str | None:
    """Return the dotted name in an expression such as ``mail.send``, or a name such as ``fetch``.

    None for any other expression.
    """
    match function:
        case ast.Name(id=word):
            return word
        case ast.Attribute(value=ast.Name(id=word), attr=method):
            return f"{word}.{method}"
        case _:
            return None


def _common(kinds: Iterator[ResultKind]) -> ResultKind:
    distinct_kinds = set(kinds)
    return distinct_kinds.pop() if len(distinct_kinds) == 1 else ResultKind.UNKNOWN
