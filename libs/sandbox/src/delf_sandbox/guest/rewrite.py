"""Rewriting of scripts so that ``await`` before tool calls is optional.

A tool call is awaited where its result is used. A tool call stays awaitable where the call is
passed to ``gather``, ``create_task`` and the like, also through a list. A plain function that calls
tools is made async if the script only calls it directly. Where Python allows no ``await``, as in a
lambda or generator, the call blocks.

Tool names keep their meaning even if a script rebinds them.
"""

from __future__ import annotations

import ast
from typing import Any

from delf_sandbox.guest.functions import (
    AWAITED_KINDS,
    Functions,
    ResultKind,
    enclosing_scopes,
    is_async_node,
    label_of,
)
from delf_sandbox.guest.later import DeferredCalls
from delf_sandbox.guest.misuse import check_uses
from delf_sandbox.guest.names import InitialNames, ToolNames
from delf_sandbox.guest.nodes import (
    AS_AWAITABLE,
    AS_LIST,
    ASYNC_ITER,
    ASYNC_VARIANT,
    ASYNC_VARIANT_OF,
    ASYNC_WITH,
    BLOCKING_VARIANT_OF,
    ITER,
    REPEATABLE_VARIANT,
    RESULT_OF_COROUTINE,
    WAIT,
    WATCHED_ITERATOR,
    WITH,
    attribute,
    await_node,
    call,
    name,
)
from delf_sandbox.guest.scopes import CallPlace, Place, Scope

# Functions that use the result of a passed function at once. With an async function they would get
# coroutines: filter would keep every item, and sorted would raise.
_FUNCTION_CONSUMERS = frozenset({"map", "filter", "sorted", "min", "max", "reduce", "groupby"})


class Rewriting:
    """Rewrites the syntax tree of one script in place.

    Args:
        tree: The parsed script.
        initial_names: The names that are defined when the script starts.

    Raises:
        AmbiguousError: If the script can be understood in two ways.
        ToolMisuseError: If the script uses a tool as a value.
    """

    await_everywhere = False
    """True if the script's interpreter allows ``await`` in every scope."""

    def __init__(self, tree: ast.Module, initial_names: InitialNames) -> None:
        self._initial_names = initial_names
        names = ToolNames(tree, initial_names)
        self._names = names
        self._syntax = names.syntax
        check_uses(tree, names)
        self._functions = Functions(names, await_everywhere=self.await_everywhere)
        self._deferred = DeferredCalls(self._functions)
        # The builtins any() and all() stop early. They must not skip the call of a write action,
        # which is an action that changes data.
        self._functions.raise_if_any_or_all_may_skip_write_action()
        # The kind of result of each call, by the ``id()`` of the call's node. DeferredCalls must
        # come first, because it finds out which plain functions return awaitables.
        self._result_kinds = {
            node_id: self._functions.result_kind(call_place)
            for node_id, call_place in self._syntax.calls.items()
        }
        self.bound_names = _names_bound_in(self._syntax.module)
        """The names that the script defines for later scripts."""
        self.rebound_names = sorted(names.rebound_names)
        """The tool names that the script binds to something else."""
        self._rewrite_tree()
        self.async_functions = frozenset(
            scope.node.name
            for scope in self._syntax.functions
            if scope.parent is self._syntax.module and self._functions.is_async(scope)
        )
        """The names of the async functions that the script defines for later scripts."""

    def names_bound_in_function(self, function: ast.AST) -> frozenset[str]:
        """Return the names that a function of the script binds."""
        return _names_bound_in(self._syntax.scopes[id(function)])

    def _rewrite_tree(self) -> None:
        """Rewrite all functions, loops, ``await`` expressions, calls and ``with`` statements."""
        # Look at the tree before it is changed: the steps below add names, and wrap nodes.
        has_awaitables = self.has_awaitables()
        lazy_expressions = self._find_lazy_expressions()
        self._rewrite_cached_functions()
        self._rewrite_awaits_of_values()
        for place in self._deferred.passed_functions:
            self.replace_passed_function(place)
        self._rewrite_calls(has_awaitables)
        for place in lazy_expressions:
            self._rewrite_lazy_expression(place)
        for place in self._syntax.loops:
            self._rewrite_loop(place)
        for place in self._syntax.contexts:
            self._rewrite_with(place)
        self._make_functions_async()

    def _rewrite_cached_functions(self) -> None:
        for scope in self._syntax.functions:
            if isinstance(scope.node, ast.AsyncFunctionDef):
                # An async function with ``@cache`` returns one coroutine to several callers.
                self._make_cached_result_reusable(scope.node)

    def _rewrite_awaits_of_values(self) -> None:
        """Rewrite each ``await task``, because the variable may have a plain value."""
        for place in self._syntax.awaits:
            if not isinstance(place.node.value, ast.Call):
                self._rewrite_await(place, is_surely_awaitable=False)

    def _rewrite_calls(self, has_awaitables: bool) -> None:
        # For ``await send()``, the ``id()`` of ``send()``, mapped to the place of the ``await``.
        await_by_call_id = {id(place.node.value): place for place in self._syntax.awaits}
        for place in self._syntax.loops:
            self._exempt_call_of_async_generator(place)
        for place in self._syntax.calls.values():
            self._rewrite_call(place, await_by_call_id.get(id(place.node)), has_awaitables)

    def _make_functions_async(self) -> None:
        for scope in self._syntax.functions:
            if id(scope) in self._functions.made_async:
                # The plain function now has an ``await``. Change the class in place, because other
                # parts of the tree refer to this node; both classes have the same fields.
                scope.node.__class__ = ast.AsyncFunctionDef

    def _make_cached_result_reusable(self, function: ast.AsyncFunctionDef) -> None:
        """Let each caller await the result of an async function with ``@cache``.

        The cache would store a coroutine, which can be awaited only once.
        """
        for decorator in function.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            label = label_of(called) or ""
            decorator_name = label.rpartition(".")[2]  # ``cache`` for ``@functools.cache``
            if decorator_name in ("cache", "lru_cache"):
                # The last decorator is applied first, so the cache stores a result that can be
                # awaited more than once, unlike a coroutine.
                function.decorator_list.append(name(decorator, REPEATABLE_VARIANT))
                return

    def has_awaitables(self) -> bool:
        """Return True if a function that cannot be identified may return an awaitable.

        An unidentified function may be any object of the script, so the answer is True if the
        script has async functions, uses ``asyncio`` or has another source of awaitables.
        """
        if self._functions.returning_awaitables:
            return True
        if any(map(self._functions.is_async, self._syntax.functions)):
            return True
        asyncio_names = self._syntax.asyncio_names | self._syntax.from_asyncio.keys()
        for place, _ in self._syntax.loads:
            word = place.node.id
            if word in asyncio_names or self._initial_names.is_async(word):
                return True
        return False

    def make_awaitable(self, place: CallPlace, *, is_awaited: bool) -> None:
        """Rewrite a tool call so that it returns an awaitable.

        Args:
            place: The call.
            is_awaited: Whether the rewritten script has an ``await`` directly before the call. Not
                used here, but in subclasses.
        """
        place.node.func = attribute(place.node.func, ASYNC_VARIANT)

    def replace_passed_function(self, place: Place) -> None:
        """Replace a function passed to ``map`` by a variant that returns awaitables."""
        place.put(self.awaitable_variant(place.node))

    def awaitable_variant(self, function: Any) -> Any:
        """Build an expression for a variant of a function that returns awaitables."""
        return call(ASYNC_VARIANT_OF, function)

    def await_or_block(self, place: Place, value: Any) -> ast.expr:
        """Return an expression that awaits a value.

        At a place where ``await`` is not allowed, the expression blocks until the value is there.
        """
        if self._functions.can_await(place.scope):
            return await_node(value)
        return call(WAIT, value)

    def _rewrite_call(
        self, place: CallPlace, await_place: Place | None, has_awaitables: bool
    ) -> None:
        """Rewrite a call so that it returns the result, or an awaitable if the script awaits it.

        Args:
            place: The call.
            await_place: The ``await`` expression around the call, if any.
            has_awaitables: Whether calls of unknown functions may return an awaitable.
        """
        kind = self._result_kinds[id(place.node)]
        if await_place is not None:  # ``await send()``
            self._let_call_return_awaitable(place, kind, is_awaited=True)
            self._rewrite_await(await_place, is_surely_awaitable=kind in AWAITED_KINDS)
        # The script awaits the call later: ``gather(send())`` or ``tasks.append(send())``.
        elif place.must_not_await_in_place:
            self._let_call_return_awaitable(place, kind, is_awaited=False)
        else:  # the script never awaits the call, and uses the result: ``send().id``
            self._await_result_in_place(place, kind, has_awaitables)

    def _let_call_return_awaitable(
        self, place: CallPlace, kind: ResultKind, *, is_awaited: bool
    ) -> None:
        """Rewrite a call that the script awaits, so that a tool returns an awaitable.

        Without this change, a tool blocks until its result is there, and returns the result.

        Args:
            place: The call.
            kind: The kind of result.
            is_awaited: Whether the call is in an ``await``; otherwise the script awaits it later.
        """
        if kind is ResultKind.TOOL:
            self.make_awaitable(place, is_awaited=is_awaited)
        elif kind in (ResultKind.UNKNOWN, ResultKind.MAYBE_AWAITABLE):
            # The function may be a tool; only the running script shows that.
            place.node.func = self.awaitable_variant(place.node.func)

    def _await_result_in_place(
        self, place: CallPlace, kind: ResultKind, has_awaitables: bool
    ) -> None:
        """Rewrite a call without ``await`` so that the script gets the result, not an awaitable.

        Args:
            place: The call, whose result the script does not await later.
            kind: The kind of result.
            has_awaitables: Whether calls of unknown functions may return an awaitable.
        """
        node = place.node
        can_await = self._functions.can_await(place.scope)
        # The helper checks the result when the script runs: it waits for a coroutine, lets a plain
        # ``for`` iterate an async generator, and returns any other value unchanged.
        checked_node = call(RESULT_OF_COROUTINE, node)
        match kind:
            case ResultKind.TOOL:
                # Where ``await`` is not allowed, the call stays as it is: a tool blocks by itself.
                if can_await:
                    self.make_awaitable(place, is_awaited=True)
                    place.put(await_node(node))
            case ResultKind.COROUTINE:
                place.put(self.await_or_block(place, node))
            case ResultKind.PLAIN:
                self.let_call_accept_async_functions(place)
            case ResultKind.ASYNC_GENERATOR:
                place.put(checked_node)
            case ResultKind.UNKNOWN:
                if has_awaitables:
                    place.put(checked_node)
            case ResultKind.MAYBE_AWAITABLE:
                if can_await:
                    node.func = self.awaitable_variant(node.func)
                    # AS_AWAITABLE lets the ``await`` accept a plain value.
                    place.put(await_node(call(AS_AWAITABLE, node)))
                else:
                    place.put(checked_node)

    def _rewrite_await(self, place: Place, *, is_surely_awaitable: bool) -> None:
        """Rewrite an ``await`` so that it also accepts a plain value.

        Where ``await`` is not allowed, the rewritten expression blocks until the value is there.

        Args:
            place: The ``await`` expression.
            is_surely_awaitable: Whether the awaited value is awaitable in every case.
        """
        awaited_node = place.node.value
        if not self._functions.can_await(place.scope):
            place.put(call(WAIT, awaited_node))
        elif not is_surely_awaitable:
            place.node.value = call(AS_AWAITABLE, awaited_node)

    def let_call_accept_async_functions(self, place: CallPlace) -> None:
        """Replace async functions passed to ``sorted``, ``map`` and the like by plain functions.

        A plain function blocks until the result of the async function, so that ``sorted`` gets
        this result instead of a coroutine.
        """
        node = place.node
        if not isinstance(node.func, ast.Name) or node.func.id not in _FUNCTION_CONSUMERS:
            return
        for index, item in enumerate(node.args):
            if self._is_async_name(item, place.scope):
                node.args[index] = call(BLOCKING_VARIANT_OF, item)
        for keyword in node.keywords:
            if self._is_async_name(keyword.value, place.scope):
                keyword.value = call(BLOCKING_VARIANT_OF, keyword.value)

    def _is_async_name(self, node: Any, scope: Scope) -> bool:
        return (
            isinstance(node, ast.Name)
            and self._functions.result_kind_of_name(node.id, scope) is ResultKind.COROUTINE
        )

    def _exempt_call_of_async_generator(self, place: Place) -> None:
        """Exempt ``rows()`` in ``async for row in rows()`` from the rewriting of calls.

        Only a call that makes an async generator is exempted.

        Args:
            place: Any loop, or ``for`` clause of a comprehension.
        """
        call_place = self._syntax.calls.get(id(place.node.iter))
        if (
            call_place is not None
            and self._allows_async_for(place)
            and self._result_kinds[id(call_place.node)] is ResultKind.ASYNC_GENERATOR
        ):
            # Otherwise _rewrite_call() would wrap the call as for a plain ``for``.
            call_place.must_not_await_in_place = True

    def _allows_async_for(self, place: Place) -> bool:
        """Return True if a loop is an ``async for`` and ``await`` is allowed at its position."""
        # A clause of a generator expression runs later, in whatever function iterates the result.
        is_clause_of_generator = any(
            place.node in generator.node.generators for generator in self._syntax.generators
        )
        return (
            is_async_node(place.node)
            and self._functions.can_await(place.scope)
            and not is_clause_of_generator
        )

    def _rewrite_loop(self, place: Place) -> None:
        """Rewrite an ``async for`` so that it also accepts a plain iterable, such as a list.

        Where ``await`` is not allowed, the loop becomes a plain ``for``.
        """
        node = place.node
        if not is_async_node(node):
            return
        if self._allows_async_for(place):
            node.iter = call(ASYNC_ITER, node.iter)
        else:  # for example in a plain function: make it a plain ``for``
            node.iter = call(ITER, node.iter)
            if isinstance(node, ast.comprehension):
                # An async comprehension does not compile in a plain function.
                node.is_async = 0
            else:
                node.__class__ = ast.For

    def _rewrite_with(self, place: Place) -> None:
        """Rewrite an ``async with`` so that it accepts plain context managers.

        Where ``await`` is not allowed, the statement becomes a plain ``with``, whose helper blocks
        while it enters and leaves an async context manager.
        """
        node: Any = place.node
        if not is_async_node(node):
            return
        helper = ASYNC_WITH if self._functions.can_await(place.scope) else WITH
        for item in node.items:
            item.context_expr = call(helper, item.context_expr)
        if helper == WITH:
            node.__class__ = ast.With

    def _find_lazy_expressions(self) -> list[Place]:
        """Return the expressions that make tool calls only when the script iterates the result.

        The expressions are generator expressions, and calls of ``map`` and generator functions.
        """
        scopes = self._syntax.scopes
        generators = [
            place
            for place in self._syntax.generators
            if self._waits_for_tool_calls(scopes[id(place.node)])
        ]
        calls = [place for place in self._syntax.calls.values() if self._is_lazy_call(place)]
        return [place for place in (*generators, *calls) if self.must_rewrite_lazy(place)]

    def _is_lazy_call(self, place: CallPlace) -> bool:
        # In ``gather(*map(send, names))``, the script awaits the tool calls itself.
        if place.must_not_await_in_place:
            return False
        match place.node:
            case ast.Call(func=ast.Name(id="map" | "filter" as word), args=[function, *_]) if (
                self._names.is_builtin(word, place.scope)
            ):
                return self._makes_tool_call_for_each_item(function)
            case _:
                return self._calls_generator_function(place)

    def must_rewrite_lazy(self, place: Place) -> bool:
        """Return True if a lazy expression that makes tool calls has to be rewritten.

        Args:
            place: The lazy expression. Not used here, but in subclasses.
        """
        return True

    def _waits_for_tool_calls(self, scope: Scope) -> bool:
        """Return True if the code in a scope, or in a scope inside it, waits for tool calls."""
        for place in self._syntax.calls.values():
            is_in_scope = any(outer is scope for outer in enclosing_scopes(place.scope))
            # A call of an async function, such as gather(), may wait for tool calls, too.
            is_awaitable = self._result_kinds[id(place.node)] in AWAITED_KINDS
            # In ``tasks.append(send())``, the code only stores the call.
            if is_in_scope and is_awaitable and not place.must_not_await_in_place:
                return True
        return False

    def _calls_generator_function(self, place: CallPlace) -> bool:
        """Return True if a call's target is a generator function that makes tool calls.

        The function must be defined in the script, without decorators.
        """
        functions = self._functions.targets(place.node.func, place.scope)
        return bool(functions) and all(map(self._is_generator_with_tool_calls, functions))

    def _is_generator_with_tool_calls(self, scope: Scope) -> bool:
        """Return True for a plain generator function that makes tool calls.

        An async function is not plain, because its result is no plain iterator. A function with a
        decorator is not plain either, because the decorator may return a function that is not lazy.
        """
        if not scope.is_generator or not isinstance(scope.node, ast.FunctionDef):
            return False
        return not scope.node.decorator_list and self._waits_for_tool_calls(scope)

    def _makes_tool_call_for_each_item(self, function: Any) -> bool:
        """Return True if a function passed to ``map`` is a tool, or a lambda that calls tools."""
        if isinstance(function, ast.Lambda):
            lambda_scope = self._syntax.scopes[id(function)]
            for place in self._syntax.calls.values():
                is_in_lambda = place.scope.function_scope is lambda_scope
                # Calls of tools are awaited, and so are calls of async functions, which may call
                # tools.
                is_awaited = self._result_kinds[id(place.node)] in AWAITED_KINDS
                if is_in_lambda and is_awaited:
                    return True
            return False
        first_name, _, action = (label_of(function) or "").partition(".")
        if action:  # ``mail.send``
            return self._initial_names.is_connection(first_name)
        return self._initial_names.is_plain_tool(first_name)  # ``weather``

    def _rewrite_lazy_expression(self, place: Place) -> None:
        """Run a lazy expression at once if it is a whole statement.

        The script may iterate any other lazy expression later, so only warn if it never does.
        """
        helper = AS_LIST if isinstance(place.container, ast.Expr) else WATCHED_ITERATOR
        place.put(call(helper, place.current))


def _names_bound_in(scope: Scope) -> frozenset[str]:
    return frozenset(scope.binding_kinds) - {"*"}  # of ``from x import *``
