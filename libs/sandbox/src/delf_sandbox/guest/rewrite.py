"""Rewriting of scripts so that ``await`` before tool calls is optional.

A tool call is awaited where its result is used. A tool call stays awaitable where the call is
passed to ``gather``, ``create_task`` and the like, also through a list. A plain function that calls
tools is made async if the script only calls it directly. Where Python allows no ``await``, as in a
lambda or generator, the call blocks.

Tool names keep their meaning even if a script rebinds them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from delf_sandbox.guest.functions import Functions, enclosing_scopes, is_async_node, label_of
from delf_sandbox.guest.later import Later
from delf_sandbox.guest.misuse import check_uses
from delf_sandbox.guest.names import InitialNames, ToolNames
from delf_sandbox.guest.nodes import (
    AGAIN,
    ALL,
    ASYNC_ITER,
    ASYNC_WITH,
    ITER,
    LATER,
    LATER_OF,
    NOW_OF,
    ONCE,
    RESULT,
    SETTLE,
    WAIT,
    WITH,
    attribute,
    await_node,
    call,
    name,
)
from delf_sandbox.guest.scopes import CallPlace, Place, Scope

# Functions that use the result of a passed function at once. With an async function they would get
# coroutines: filter would keep every item, and sorted would raise.
_TAKING_FUNCTIONS = frozenset({"map", "filter", "sorted", "min", "max", "reduce", "groupby"})


@dataclass
class Rewritten:
    """The changes that rewriting made to a script.

    Args:
        rebound: Tool names that the script rebinds.
        functions: Async functions defined for later scripts.
    """

    rebound: list[str] = field(default_factory=list[str])
    functions: set[str] = field(default_factory=set[str])


class Rewriting:
    """The rewriting of one script, in place.

    Args:
        tree: The parsed script.
        initial_names: The names that exist when the script starts.

    Raises:
        AmbiguousError: If the script is ambiguous.
        ToolMisuseError: If the script uses a tool as a value.
    """

    everywhere = False
    """True if ``await`` is allowed anywhere."""

    def __init__(self, tree: ast.Module, initial_names: InitialNames) -> None:
        self._initial_names = initial_names
        self._names = names = ToolNames(tree, initial_names)
        self._seen = names.seen
        check_uses(tree, names)
        self._functions = Functions(names, everywhere=self.everywhere)
        self._later = Later(self._functions)
        self._functions.check_any_and_all()
        self._kinds = {key: self._functions.kind(p) for key, p in self._seen.calls.items()}
        self.done = Rewritten(rebound=sorted(names.rebound))
        self._write()
        self.done.functions = {
            scope.node.name
            for scope in self._seen.functions
            if scope.parent is self._seen.module and self._functions.is_async(scope)
        }

    def _write(self) -> None:
        """Rewrite all loops, calls, contexts and functions of the script."""
        # Before anything is rewritten: the question is about the names of the original script.
        may_give_coroutines = self.may_give_coroutines()
        for scope in self._seen.functions:
            if isinstance(scope.node, ast.AsyncFunctionDef):
                self._make_cacheable(scope.node)
        for place in self._seen.loops:
            self._keep_stream(place)
        for place in self._seen.awaits:
            if not isinstance(place.node.value, ast.Call):
                self._write_await(place, is_sure=False)
        for place in self._later.handed_over:
            self.hand_over_later(place)
        # By the identity of nodes: equal calls on two lines are different places.
        calls_in_awaits = {id(place.node.value): place for place in self._seen.awaits}
        # Found before the calls are rewritten, whose nodes then stand elsewhere in the tree;
        # written afterwards, around the rewritten calls.
        lazy = self._lazy_calls()
        for place in self._seen.calls.values():
            self._write_call(place, calls_in_awaits.get(id(place.node)), may_give_coroutines)
        for place in lazy:
            self._write_lazy(place)
        for place in self._seen.loops:
            self._write_loop(place)
        for place in self._seen.contexts:
            self._write_context(place)
        for scope in self._seen.functions:
            if id(scope) in self._functions.made_async:
                # Change the class in place, because other parts of the tree refer to this node;
                # both classes have the same fields.
                scope.node.__class__ = ast.AsyncFunctionDef

    def _make_cacheable(self, function: ast.AsyncFunctionDef) -> None:
        """Let the result of a cached async function be awaited several times."""
        for decorator in function.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            # Also with arguments and by module: ``@cache``, ``@lru_cache(maxsize=9)``,
            # ``@functools.cache``.
            if (label_of(called) or "").rpartition(".")[2] in ("cache", "lru_cache"):
                # Innermost, so that the cache stores the repeatable result: a coroutine can be
                # awaited only once, so the second hit would raise.
                function.decorator_list.append(name(decorator, AGAIN))
                return

    def may_give_coroutines(self) -> bool:
        """Return True if a call of an unknown function may return an awaitable."""
        return (
            bool(self._functions.gives_awaitables)
            or any(map(self._functions.is_async, self._seen.functions))
            or any(
                place.node.id in self._seen.asyncio_names
                or self._initial_names.is_async(place.node.id)
                for place, _ in self._seen.loads
            )
            or any(
                place.node.value.id in self._seen.asyncio_names
                for place, _ in self._seen.attributes
                if isinstance(place.node.value, ast.Name)
            )
        )

    def make_later(self, place: CallPlace, *, is_awaited: bool) -> None:
        """Turn a tool call into an awaitable.

        Args:
            place: The call.
            is_awaited: Whether the call is awaited in place.
        """
        place.node.func = attribute(place.node.func, LATER)

    def hand_over_later(self, place: Place) -> None:
        """Replace a passed function by a variant that returns awaitables where it calls tools."""
        place.put(self.awaitable_variant(place.node))

    def awaitable_variant(self, function: Any) -> Any:
        """Wrap an unknown function so that its calls return awaitables."""
        return call(LATER_OF, function)

    def await_or_block(self, place: Place, value: Any) -> ast.expr:
        """Await a call in place, or block if ``await`` is not allowed there."""
        return await_node(value) if self._functions.can_await(place.scope) else call(WAIT, value)

    def _write_call(
        self, place: CallPlace, outer: Place | None, may_return_awaitable: bool
    ) -> None:
        """Rewrite a call so that the script gets its result, or an awaitable if it needs one.

        Args:
            place: The call.
            outer: The ``await`` around the call, if any.
            may_return_awaitable: Whether a call of an unknown function may return an awaitable.
        """
        kind, node = self._kinds[id(place.node)], place.node
        if kind == "tool" and (
            outer is not None or place.stays_awaitable or self._functions.can_await(place.scope)
        ):
            self.make_later(place, is_awaited=not place.stays_awaitable or outer is not None)
        if kind in ("unknown", "maybe") and (outer is not None or place.stays_awaitable):
            node.func = self.awaitable_variant(node.func)
        if outer is not None:
            self._write_await(outer, is_sure=kind in ("tool", "async"))
        elif place.stays_awaitable:
            pass
        elif kind == "tool":
            if self._functions.can_await(place.scope):
                place.put(await_node(node))
        elif kind == "async":
            place.put(self.await_or_block(place, node))
        elif kind == "maybe" and self._functions.can_await(place.scope):
            node.func = self.awaitable_variant(node.func)
            place.put(await_node(call(SETTLE, node)))
        elif kind in ("stream", "maybe") or (kind == "unknown" and may_return_awaitable):
            place.put(call(RESULT, node))
        elif kind == "plain":
            self.write_passed_functions(place)

    def _write_await(self, place: Place, *, is_sure: bool) -> None:
        awaited_node = place.node.value
        if not self._functions.can_await(place.scope):
            place.put(call(WAIT, awaited_node))
        elif not is_sure:
            place.node.value = call(SETTLE, awaited_node)

    def write_passed_functions(self, place: CallPlace) -> None:
        """Rewrite async functions that plain functions call, as in ``sorted(names, key=fetch)``."""
        node = place.node
        if not isinstance(node.func, ast.Name) or node.func.id not in _TAKING_FUNCTIONS:
            return
        for index, item in enumerate(node.args):
            if self._is_async_name(item, place.scope):
                node.args[index] = call(NOW_OF, item)
        for keyword in node.keywords:
            if self._is_async_name(keyword.value, place.scope):
                keyword.value = call(NOW_OF, keyword.value)

    def _is_async_name(self, node: Any, scope: Scope) -> bool:
        return (
            isinstance(node, ast.Name) and self._functions.kind_of_name(node.id, scope) == "async"
        )

    def _keep_stream(self, place: Place) -> None:
        """Keep an async generator as such if ``async for`` iterates it."""
        call_place = self._seen.calls.get(id(place.node.iter))
        if (
            call_place is not None
            and self._allows_async_for(place)
            and self._kinds[id(call_place.node)] == "stream"
        ):
            call_place.stays_awaitable = True

    def _allows_async_for(self, place: Place) -> bool:
        """Return True if a loop is an ``async for`` and may stay one."""
        return (
            is_async_node(place.node)
            and self._functions.can_await(place.scope)
            and not any(place.box is lazy.node.generators for lazy in self._seen.generators)
        )

    def _write_loop(self, place: Place) -> None:
        """Rewrite ``async for`` over a plain iterable, or where ``async for`` is not allowed."""
        node = place.node
        if self._allows_async_for(place):
            node.iter = call(ASYNC_ITER, node.iter)
        elif is_async_node(node):
            node.iter = call(ITER, node.iter)
            if isinstance(node, ast.comprehension):
                # An async comprehension does not compile in a plain function.
                node.is_async = 0
            else:
                node.__class__ = ast.For

    def _write_context(self, place: Place) -> None:
        node: Any = place.node
        if not is_async_node(node):
            return
        word = ASYNC_WITH if self._functions.can_await(place.scope) else WITH
        for item in node.items:
            item.context_expr = call(word, item.context_expr)
        if word == WITH:
            node.__class__ = ast.With

    def _lazy_calls(self) -> list[Place]:
        """Return generators and ``map`` calls over tool calls, which run only when iterated."""
        # A generator that nobody iterates would silently make no calls.
        lazy_places = [
            place
            for place in self._seen.generators
            if self._makes_calls(self._seen.scopes[id(place.node)])
        ]
        for place in self._seen.calls.values():
            match place.node:
                case ast.Call(func=ast.Name(id="map" | "filter"), args=[function, *_]):
                    if not place.stays_awaitable and self._calls_tools(function):
                        lazy_places.append(place)
                case _ if not place.stays_awaitable and self._makes_generator(place):
                    lazy_places.append(place)
                case _:
                    pass
        if self.everywhere:  # others become lists there
            return [place for place in lazy_places if isinstance(place.box, (ast.Expr, ast.Assign))]
        return lazy_places

    def _makes_calls(self, inner: Scope) -> bool:
        """Return True if a scope itself contains tool calls."""
        return any(
            scope is inner
            for place in self._seen.calls.values()
            if self._kinds[id(place.node)] in ("tool", "async") and not place.stays_awaitable
            for scope in enclosing_scopes(place.scope)
        )

    def _makes_generator(self, place: CallPlace) -> bool:
        """Return True if a call is of the script's own generator function with calls of tools."""
        functions = self._functions.targets(place)
        return bool(functions) and all(
            scope.is_generator
            and isinstance(scope.node, ast.FunctionDef)
            and not scope.node.decorator_list
            and self._makes_calls(scope)
            for scope in functions
        )

    def _calls_tools(self, function: Any) -> bool:
        if isinstance(function, ast.Lambda):
            inner = self._seen.scopes[id(function)]
            return any(
                place.scope.function is inner and self._kinds[id(place.node)] in ("tool", "async")
                for place in self._seen.calls.values()
            )
        word, _, method = (label_of(function) or "").partition(".")
        return word in self._initial_names.tools and bool(method) == bool(
            self._initial_names.tools[word]
        )

    def _write_lazy(self, place: Place) -> None:
        # A statement of its own is run for its effect; a value may be iterated later, once.
        word = ALL if isinstance(place.box, ast.Expr) else ONCE
        place.put(call(word, place.current))
