"""Detection of calls that must stay awaitable, by following their values."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from delf_sandbox.guest.functions import Functions
from delf_sandbox.guest.names import BUILTINS
from delf_sandbox.guest.scopes import (
    EACH_ITEM,
    TO_CONTAINER,
    CallPlace,
    Path,
    Place,
    Scope,
    Step,
    ValuePart,
)

# Builtins whose result has the items of the argument, in the same order or in another.
_SAME_ORDER = frozenset({"list", "tuple", "iter"})
_OTHER_ORDER = frozenset({"set", "frozenset", "reversed", "sorted"})

_MAX_PATH_STEPS = 6

# Stands for a function's result in the set of visited parts, whose other members have names.
_FUNCTION_RESULT = ""


class DeferredCalls:
    """Finds the calls whose awaitables a script stores in order to await or gather them later.

    The rewriting must not await these calls in place. The attribute ``is_await_deferred`` marks
    each of the calls.

    Args:
        functions: The functions of the script.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._syntax = functions.syntax
        self.passed_functions: list[Place] = []
        """The functions that the script passes to ``map`` and whose results it awaits later."""
        # The results, parameters and variables that were followed: the ``id()`` of the scope, the
        # name, and the path to the awaitables within the value.
        self._visited: set[tuple[int, str, Path]] = set()
        # Mark all calls now: follow each value that the script awaits back to the calls that made
        # it. A path leads from an expression's value to the awaitables inside the value.
        for expression, scope, awaitable_path in self._syntax.awaitables:
            self._mark_calls_in(expression, scope, awaitable_path)

    def _mark_calls_in(self, node: Any, scope: Scope, awaitable_path: Path) -> None:
        """Mark the calls that make the awaitables in an expression's value.

        The script awaits a marked call later, so the rewriting must not await the call in place.

        In ``tasks = [send(1), send(2)]`` and ``await tasks[0]``, the method visits, one after the
        other:

        - ``tasks[0]`` with the path ``()``
        - ``tasks`` with the path ``(EACH_ITEM,)``
        - ``[send(1), send(2)]`` with the path ``(EACH_ITEM,)``
        - ``send(1)`` and ``send(2)`` with the path ``()``: these calls are marked

        Args:
            node: The expression.
            scope: The scope of the expression.
            awaitable_path: The indexes that lead from the value to the awaitables, with
                ``EACH_ITEM`` for all items; empty if the value itself is the awaitable.
        """
        match node:
            case ast.Call():
                self._mark_call(node, awaitable_path)
            # ``tasks[0]`` or ``*tasks``: from ``tasks``, the first step leads to an item. The index
            # may be a variable, so any item counts.
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                self._mark_calls_in(inner, scope, (EACH_ITEM, *awaitable_path))
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                self._mark_calls_in_items(items, scope, awaitable_path)
            # From a dict or comprehension, the first step leads to an item. From the item, only the
            # other steps are left.
            case ast.Dict(values=items):
                for item in items:
                    self._mark_calls_in(item, scope, awaitable_path[1:])
            case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
                self._mark_calls_in(item, self._syntax.scopes[id(node)], awaitable_path[1:])
            case ast.DictComp(value=item):
                self._mark_calls_in(item, self._syntax.scopes[id(node)], awaitable_path[1:])
            case ast.Name(id=word):
                self._mark_calls_in_variable(word, scope, awaitable_path)
            # ``self.tasks``: follow all values that the script assigns to an attribute ``tasks`` of
            # any object, because the type of the object is unknown.
            case ast.Attribute(attr=attribute):
                values = self._syntax.stores.get(attribute, ())
                self._mark_calls_in_bindings(id(self._syntax), attribute, values, awaitable_path)
            case ast.IfExp(body=first, orelse=second):
                self._mark_calls_in(first, scope, awaitable_path)
                self._mark_calls_in(second, scope, awaitable_path)
            # In ``first + second``, the items of ``second`` have other indexes than in the sum. The
            # sum is no awaitable, but all items of a list may be awaited at once.
            case ast.BinOp(left=first, right=second):
                self._mark_calls_in(first, scope, awaitable_path or (EACH_ITEM,))
                self._mark_calls_in(second, scope, _to_any_item(awaitable_path))
            case ast.BoolOp(values=items):
                for item in items:
                    self._mark_calls_in(item, scope, awaitable_path)
            # An awaited result may contain awaitables, such as a list of tasks.
            case ast.Await(value=ast.Call() as inner):
                self._mark_calls_in_called_function(
                    self._syntax.calls[id(inner)], awaitable_path, is_awaited=True
                )
            case _:
                pass

    def _mark_calls_in_items(
        self, items: Sequence[Any], scope: Scope, awaitable_path: Path
    ) -> None:
        """Mark the calls in a collection whose awaitables the script awaits later.

        In ``[first, *tasks, last]``, the index 0 selects ``first``. The index 1 selects either the
        first item of ``tasks`` or ``last``, so both are followed.

        Args:
            items: The items of a list, tuple or set.
            scope: The scope of the items.
            awaitable_path: The path from the collection to the awaitables: first the index of the
                item, or ``EACH_ITEM``, then the path inside the item.
        """
        # With an empty path, the collection itself is awaited, which means all its items.
        wanted_index, *further_steps = awaitable_path or (EACH_ITEM,)
        path_in_item: Path = tuple(further_steps)
        items_before_star = [*takewhile(_is_not_starred, items)]
        star_index = len(items_before_star)
        # Calls in items with another index stay unmarked: the script uses these items as plain
        # results, so their calls must be awaited in place.
        for index, item in enumerate(items_before_star):
            if wanted_index in (EACH_ITEM, index):
                self._mark_calls_in(item, scope, path_in_item)
        if star_index == len(items):
            return
        # The index within the starred collection: 0 for index 1 of ``[first, *tasks, last]``.
        index_in_starred: Step = EACH_ITEM
        if isinstance(wanted_index, int):
            index_in_starred = wanted_index - star_index
            if index_in_starred < 0:
                return
        starred, *items_after_star = items[star_index:]
        self._mark_calls_in(starred.value, scope, (index_in_starred, *path_in_item))
        # How many items the starred collection has is unknown, so these may have any index.
        for item in items_after_star:
            self._mark_calls_in(item, scope, path_in_item)

    def _mark_call(self, node: ast.Call, awaitable_path: Path) -> None:
        """Mark a call if its result is an awaitable that the script awaits later.

        If the result only has items of a collection, as for ``tasks.pop()`` and ``list(tasks)``,
        mark the calls that made the items of ``tasks``. If the call is one of a function of the
        script, mark the calls inside the function that make the awaitables of the result.

        Args:
            node: The call.
            awaitable_path: The indexes that lead from the call's result to the awaitables, with
                ``EACH_ITEM`` for all items; empty if the result itself is the awaitable.
        """
        place = self._syntax.calls[id(node)]
        function = node.func
        if isinstance(function, ast.Name):
            is_builtin = function.id in BUILTINS and place.scope.find(function.id) is None
            if is_builtin:
                self._mark_calls_in_builtin(function.id, place, awaitable_path)
                return
        # A method such as get() is that of a dict, or that of a class of the script: the type of
        # the object is unknown. So mark the calls for both.
        if isinstance(function, ast.Attribute):
            self._mark_calls_in_collection(function, place, awaitable_path)
        is_result_awaitable = not awaitable_path
        if is_result_awaitable:
            place.is_await_deferred = True
        self._mark_calls_in_called_function(place, awaitable_path)

    def _mark_calls_in_collection(
        self, function: ast.Attribute, place: CallPlace, awaitable_path: Path
    ) -> None:
        """Mark the calls that made the items of a collection, which a method returns.

        Args:
            function: The method with its object, such as ``tasks.pop`` or ``itertools.chain``.
            place: The call of the method.
            awaitable_path: The path from the method's result to the awaitables.
        """
        collection = function.value
        match function.attr:
            # ``tasks.values()`` and ``tasks.copy()`` have the same items as ``tasks``.
            case "values" | "copy":
                self._mark_calls_in(collection, place.scope, awaitable_path)
            # In ``for key, task in tasks.items(): await task``, the path from ``tasks.items()`` is
            # (EACH_ITEM, 1): to each pair, and then to the value in the pair. In the dict ``tasks``
            # itself, the step EACH_ITEM leads to the value, without a pair.
            case "items" if _leads_to_second(awaitable_path):
                _to_pair, _to_value, *path_in_value = awaitable_path
                self._mark_calls_in(collection, place.scope, (EACH_ITEM, *path_in_value))
            # ``tasks.pop()`` is an item of ``tasks``.
            case "get" | "pop" | "popleft":
                self._mark_calls_in(collection, place.scope, (EACH_ITEM, *awaitable_path))
            # The items of ``itertools.chain()`` are the items of each argument.
            case "chain":
                for argument in place.node.args:
                    self._mark_calls_in(argument, place.scope, _to_any_item(awaitable_path))
            case _:
                pass

    def _mark_calls_in_builtin(self, word: str, place: CallPlace, awaitable_path: Path) -> None:
        """Mark the calls in the arguments of a builtin, such as ``zip``, that are awaited later.

        In ``for a, b in zip(names, [send(1), send(2)]): await b``, these are the calls of ``send``,
        and the path from the result of ``zip`` to their awaitables is ``(EACH_ITEM, 1)``.

        Args:
            word: The name of the builtin.
            place: The call of the builtin.
            awaitable_path: The indexes that lead from the builtin's result to the awaitables, with
                ``EACH_ITEM`` for all items.
        """
        arguments = place.node.args
        scope = place.scope
        if word in _SAME_ORDER and arguments:
            # An item has the same index in ``list(tasks)`` as in ``tasks``. The path is empty in
            # ``asyncio.wait(list(tasks))``, which awaits all items.
            self._mark_calls_in(arguments[0], scope, awaitable_path or (EACH_ITEM,))
        elif word in _OTHER_ORDER and arguments:
            # ``sorted(tasks)[0]`` may be any item of ``tasks``.
            self._mark_calls_in(arguments[0], scope, _to_any_item(awaitable_path))
        elif word == "dict":
            # ``dict(first=send(1))``: the first step of the path leads to the value ``send(1)``.
            for item in place.node.keywords:
                self._mark_calls_in(item.value, scope, awaitable_path[1:])
        elif word == "enumerate" and arguments and _leads_to_second(awaitable_path):
            # In ``for number, task in enumerate(tasks): await task``, the path is (EACH_ITEM, 1):
            # to each pair, and then to the task. The path from ``tasks`` is (EACH_ITEM,).
            self._mark_calls_in(arguments[0], scope, (EACH_ITEM, *awaitable_path[2:]))
        elif word == "zip" and len(awaitable_path) > 1:
            # The path (EACH_ITEM, 1) leads to the second item of each tuple. These are the items of
            # the second argument, so the path from the arguments is (1, EACH_ITEM).
            _, index, *path_in_item = awaitable_path
            self._mark_calls_in_items(arguments, scope, (index, EACH_ITEM, *path_in_item))
        elif word == "map" and arguments:
            # The script awaits the items of the ``map`` itself, so its call is marked, too. The
            # first step of the path leads to an item, which is a result of the passed function.
            place.is_await_deferred = True
            self._mark_calls_in_mapped_function(arguments[0], place, awaitable_path[1:])

    def _mark_calls_in_mapped_function(
        self, function: Any, place: CallPlace, awaitable_path: Path
    ) -> None:
        """Follow the function in ``map(function, items)`` to the calls whose awaitables it returns.

        Mark these calls, because the script awaits the items of the ``map`` later.

        Args:
            function: The expression that is passed to ``map`` as the first argument.
            place: The call of ``map``.
            awaitable_path: The indexes that lead from the function's result to the awaitables.
        """
        if isinstance(function, ast.Lambda):
            self._mark_calls_in(function.body, self._syntax.scopes[id(function)], awaitable_path)
            return
        # The rewriting replaces any other function, at index 0 of the arguments, by a variant that
        # returns awaitables.
        self.passed_functions.append(Place(function, place.scope, container=place.node.args, key=0))
        # If the script defines the function, mark the calls inside it.
        if isinstance(function, ast.Name):
            scope_of_name = place.scope.find(function.id)
            key = (id(scope_of_name), function.id)
            for scope_of_function in self._functions.by_scope_and_name.get(key, ()):
                self._mark_calls_in_returns(scope_of_function, awaitable_path)

    def _mark_calls_in_called_function(
        self, place: CallPlace, awaitable_path: Path, *, is_awaited: bool = False
    ) -> None:
        """Mark the calls inside a function of the script that make the awaitables of its result.

        Two examples:

        - After ``def ask(): return send()``, the script calls ``gather(ask())``. The path is empty,
          and ``send()`` is marked, so that ``ask()`` returns an awaitable.
        - After ``async def ask_all(): return [send()]`` and ``tasks = await ask_all()``, the script
          calls ``gather(*tasks)``. The path is ``(EACH_ITEM,)``, and ``send()`` is marked.

        Args:
            place: The call of the function.
            awaitable_path: The indexes that lead to the awaitables from the call's result or, if
                ``is_awaited`` is set, from the value of ``await`` with the call.
            is_awaited: Whether the script awaits this call in place.
        """
        is_result_awaitable = not awaitable_path
        for scope in self._functions.targets(place):
            # The function may return a plain value, so that nothing need be marked, in two cases:
            #
            # - After ``async def ask(): return send()``, the script calls ``gather(ask())``. The
            #   coroutine ``ask()`` is the awaitable, whatever the function returns.
            # - The script awaits the value of ``await ask()`` again. The rewritten script accepts a
            #   plain value there.
            may_return_plain_value = is_awaited or self._functions.is_async(scope)
            if is_result_awaitable and may_return_plain_value:
                continue
            self._mark_calls_in_returns(scope, awaitable_path)
        # The targets are the functions with ``def``. A lambda has its name by an assignment.
        function = place.node.func
        if isinstance(function, ast.Name):
            owner = place.scope.find(function.id)
            if owner is None:
                return
            for value in owner.assigned_values.get(function.id, ()):
                if isinstance(value.expression, ast.Lambda):
                    self._mark_calls_in_lambda(value.expression, awaitable_path)

    def _mark_calls_in_lambda(self, function: ast.Lambda, awaitable_path: Path) -> None:
        """Mark the calls whose awaitables a lambda returns; do nothing at a repeated visit.

        Args:
            function: The lambda.
            awaitable_path: The indexes that lead from the lambda's result to the awaitables.
        """
        scope = self._syntax.scopes[id(function)]
        if self._is_first_visit(scope, _FUNCTION_RESULT, awaitable_path):
            self._functions.may_return_awaitable.add(id(scope))
            self._mark_calls_in(function.body, scope, awaitable_path)

    def _mark_calls_in_returns(self, scope: Scope, awaitable_path: Path) -> None:
        """Mark the calls whose awaitables a function of the script returns or yields.

        The script awaits a marked call later, so the rewriting must not await the call in place.

        Args:
            scope: The scope of the function.
            awaitable_path: The indexes that lead from the function's result to the awaitables,
                such as ``(1,)`` if the second item of a returned tuple is the awaitable.
        """
        if not self._is_first_visit(scope, _FUNCTION_RESULT, awaitable_path):
            return
        self._functions.may_return_awaitable.add(id(scope))
        for value in scope.returns:
            self._mark_calls_in(value, scope, awaitable_path)
        if scope.is_generator and awaitable_path:
            # Beside what it returns, a generator yields values. A caller sees these as a sequence:
            # the first index selects one of them, and the rest of the path leads on within it.
            for value in scope.yields:
                self._mark_calls_in(value, scope, awaitable_path[1:])

    def _is_first_visit(self, function: Scope, visited_part: str, awaitable_path: Path) -> bool:
        """Return True if this method has not been called with these arguments before.

        Without this check, the analysis of a recursive function would never end.

        Args:
            function: The scope of the visited function.
            visited_part: A parameter, as ``(name)``, or ``_FUNCTION_RESULT`` for its result.
                Visits of variables are in the same set, under their plain names.
            awaitable_path: The path to the awaitables in the argument or result.
        """
        visit = (id(function), visited_part, awaitable_path)
        if visit in self._visited:
            return False
        self._visited.add(visit)
        return True

    def _mark_calls_in_variable(self, variable: str, scope: Scope, awaitable_path: Path) -> None:
        """Mark the calls that make the awaitables in the value of a variable or parameter.

        The script awaits a marked call later, so the rewriting must not await the call in place.

        Args:
            variable: The name of the variable or parameter.
            scope: The scope in which the script reads the variable.
            awaitable_path: The indexes that lead from the variable's value to the awaitables.
        """
        owner = scope.find(variable)
        if owner is None:
            return
        if "param" in owner.binding_kinds[variable] and owner.kind == "function":
            self._mark_calls_in_arguments(owner, variable, awaitable_path)
        self._mark_calls_in_bindings(
            id(owner), variable, owner.assigned_values.get(variable, ()), awaitable_path
        )

    def _mark_calls_in_bindings(
        self, owner_id: int, variable: str, bindings: Sequence[ValuePart], awaitable_path: Path
    ) -> None:
        """Mark the calls that make the awaitables in the values of a variable or attribute.

        Args:
            owner_id: The ``id()`` of the scope that has the variable, which tells apart variables
                of the same name; for an attribute, the ``id()`` of the script's syntax.
            variable: The name of the variable or attribute.
            bindings: The assigned expressions, each with the path from its value to the part that
                the variable gets, such as ``(1,)`` in ``other, variable = value``.
            awaitable_path: The indexes that lead from the variable's value to the awaitables.
        """
        # A cycle of assignments would visit the name again and again, or with ever longer paths.
        visit = (owner_id, variable, awaitable_path)
        if visit in self._visited or len(awaitable_path) > _MAX_PATH_STEPS:
            return
        self._visited.add(visit)
        for value, scope, binding_path in bindings:
            self._mark_calls_in(value, scope, _join_paths(binding_path, awaitable_path))

    def _mark_calls_in_arguments(
        self, function: Scope, parameter: str, awaitable_path: Path
    ) -> None:
        """Mark the calls that make the awaitables in the arguments for a parameter.

        The function awaits these awaitables itself, so the rewriting must not await a marked call
        in place.

        Args:
            function: The scope of the function that has the parameter.
            parameter: The parameter's name.
            awaitable_path: The indexes that lead from the parameter's value to the awaitables;
                empty if the argument itself is the awaitable.
        """
        # In the set of visited parts, the parentheses keep the parameter apart from a variable of
        # the same name, whose assigned values are visited separately.
        if not self._is_first_visit(function, f"({parameter})", awaitable_path):
            return
        # The parameter ``self`` of a method is not among the arguments of a call.
        is_method = function.parent is not None and function.parent.kind == "class"
        bound_parameters = 1 if is_method else 0
        vararg = function.node.args.vararg
        for place in self._functions.calls_of.get(id(function), ()):
            arguments: list[Any] = place.node.args
            for keyword in place.node.keywords:
                if keyword.arg == parameter:
                    self._mark_calls_in(keyword.value, place.scope, awaitable_path)
            if vararg is not None and vararg.arg == parameter:
                # Each further argument is an item of ``*args``, so the first step is left out.
                positional_count = len(function.params) - bound_parameters
                for item in arguments[positional_count:]:
                    self._mark_calls_in(item, place.scope, awaitable_path[1:])
            elif parameter in function.params:
                index = function.params.index(parameter) - bound_parameters
                if 0 <= index < len(arguments):
                    self._mark_calls_in(arguments[index], place.scope, awaitable_path)


def _is_not_starred(node: ast.expr) -> bool:
    return not isinstance(node, ast.Starred)


def _join_paths(binding_path: Path, awaitable_path: Path) -> Path:
    """Return the path from an assigned value to the awaitables in a variable.

    After ``other, tasks = value`` and ``await tasks[0]``, the paths ``(1,)`` and ``(EACH_ITEM,)``
    are joined to ``(1, EACH_ITEM)``.

    After ``tasks.append(value)`` and ``await tasks[0]``, the binding path is ``(TO_CONTAINER,)``,
    from ``value`` to the list ``tasks``. The awaitable path ``(EACH_ITEM,)`` leads from the list
    back to ``value``. The two steps cancel each other, so the joined path is empty.

    Args:
        binding_path: The path from the assigned value to the variable's value. All its steps
            ``TO_CONTAINER`` are at the beginning.
        awaitable_path: The path from the variable's value to the awaitables.
    """
    cancelled_count = binding_path.count(TO_CONTAINER)
    return (*binding_path[cancelled_count:], *awaitable_path[cancelled_count:])


def _leads_to_second(awaitable_path: Path) -> bool:
    """Return True if a path leads from a collection of pairs to the second member of a pair.

    The first step leads to a pair, and the second step to its member: index 1, or each member.
    """
    return awaitable_path[1:2] in ((1,), (EACH_ITEM,))


def _to_any_item(awaitable_path: Path) -> Path:
    """Return a path that leads to each item of a collection instead of one item."""
    return (EACH_ITEM, *awaitable_path[1:])
