"""Detection of calls that must stay awaitable, by following their values."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from delf_sandbox.guest.functions import Functions
from delf_sandbox.guest.names import BUILTINS
from delf_sandbox.guest.scopes import EACH_ITEM, TO_CONTAINER, CallPlace, Path, Place, Scope

_COLLECTIONS = frozenset({"list", "tuple", "set", "frozenset", "iter", "reversed", "sorted"})

_MAX_PATH_STEPS = 6


class DeferredCalls:
    """Finds the calls whose awaitables a script stores in order to await or gather them later.

    The attribute ``stays_awaitable`` marks these calls, which must not be awaited in place.

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
        # Each path leads from the expression's value to the awaitables inside the value.
        for expression, scope, awaitable_path in self._syntax.awaitables:
            self._mark_deferred(expression, scope, awaitable_path)

    def _mark_deferred(self, node: Any, scope: Scope, awaitable_path: Path) -> None:
        """Mark the calls that make the awaitables in an expression's value as deferred.

        Args:
            node: The expression.
            scope: The scope of the expression.
            awaitable_path: The indexes that lead from the value to the awaitables, with
                ``EACH_ITEM`` for all items; empty if the value itself is the awaitable.
        """
        match node:
            case ast.Call():
                self._mark_deferred_call(node, awaitable_path)
            # The value is an item of a collection, so the path from the collection has a step more.
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                self._mark_deferred(inner, scope, (EACH_ITEM, *awaitable_path))
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                self._mark_deferred_items(items, scope, awaitable_path)
            # The first step leads to an item, and the other steps lead on inside the item.
            case ast.Dict(values=items):
                for item in items:
                    self._mark_deferred(item, scope, awaitable_path[1:])
            case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
                self._mark_deferred(item, self._syntax.scopes[id(node)], awaitable_path[1:])
            case ast.DictComp(value=item):
                self._mark_deferred(item, self._syntax.scopes[id(node)], awaitable_path[1:])
            case ast.Name(id=word):
                self._mark_deferred_in_variable(word, scope, awaitable_path)
            # The object of an attribute is unknown, so all objects share one owner of attributes.
            case ast.Attribute(attr=attribute):
                self._mark_deferred_bindings(
                    id(self._syntax),
                    attribute,
                    self._syntax.stores.get(attribute, ()),
                    awaitable_path,
                )
            case ast.IfExp(body=first, orelse=second) | ast.BinOp(left=first, right=second):
                self._mark_deferred(first, scope, awaitable_path)
                self._mark_deferred(second, scope, awaitable_path)
            case ast.BoolOp(values=items):
                for item in items:
                    self._mark_deferred(item, scope, awaitable_path)
            # An awaited result may contain awaitables, such as a list of tasks.
            case ast.Await(value=ast.Call() as inner):
                self._mark_deferred_in_called_function(
                    self._syntax.calls[id(inner)], awaitable_path, is_awaited=True
                )
            case _:
                pass

    def _mark_deferred_items(
        self, items: Sequence[Any], scope: Scope, awaitable_path: Path
    ) -> None:
        """Mark the deferred calls in those items of a list, tuple or set that are awaitables.

        Args:
            items: The items.
            scope: The scope of the items.
            awaitable_path: The path from the collection to the awaitables: first the index of the
                item, or ``EACH_ITEM``, then the path inside the item.
        """
        item_index = awaitable_path[0] if awaitable_path else EACH_ITEM
        for index, item in enumerate(items):
            if isinstance(item, ast.Starred):
                self._mark_deferred(item.value, scope, awaitable_path)
            # The script uses every other item as a plain result, so a call that makes such an item
            # must be awaited in place.
            elif item_index in (EACH_ITEM, index):
                self._mark_deferred(item, scope, awaitable_path[1:])

    def _mark_deferred_call(self, node: ast.Call, awaitable_path: Path) -> None:
        """Mark a call whose result is an awaitable, or contains awaitables, as deferred.

        If the result comes from a collection or an argument, mark the calls that made the items
        or the argument.

        Args:
            node: The call.
            awaitable_path: The indexes that lead from the call's result to the awaitables, with
                ``EACH_ITEM`` for all items; empty if the result itself is the awaitable.
        """
        place = self._syntax.calls[id(node)]
        scope, arguments = place.scope, node.args
        match node.func:
            case ast.Name(id=word) if word in BUILTINS and scope.find(word) is None:
                self._mark_deferred_in_builtin(word, place, awaitable_path)
                return
            case ast.Attribute(value=inner, attr="values" | "copy"):
                self._mark_deferred(inner, scope, awaitable_path)
            # ``items()`` yields pairs of a key and a value, and the awaitables are in the values,
            # which have index 1 in the pair. In the dict, each value is an item.
            case ast.Attribute(value=inner, attr="items") if awaitable_path[1:2] == (1,):
                self._mark_deferred(inner, scope, (EACH_ITEM, *awaitable_path[2:]))
            case ast.Attribute(value=inner, attr="get" | "pop" | "popleft"):
                self._mark_deferred(inner, scope, (EACH_ITEM, *awaitable_path))
            case ast.Attribute(attr="chain"):
                for item in arguments:
                    self._mark_deferred(item, scope, awaitable_path)
            case _:
                pass
        is_result_awaitable = not awaitable_path
        if is_result_awaitable:
            place.stays_awaitable = True
        self._mark_deferred_in_called_function(place, awaitable_path)

    def _mark_deferred_in_builtin(self, word: str, place: CallPlace, awaitable_path: Path) -> None:
        """Mark the deferred calls in the arguments of a builtin, such as ``zip``.

        Args:
            word: The name of the builtin.
            place: The call of the builtin.
            awaitable_path: The indexes that lead from the builtin's result to the awaitables, with
                ``EACH_ITEM`` for all items.
        """
        arguments, scope = place.node.args, place.scope
        if word in _COLLECTIONS and arguments:
            self._mark_deferred(arguments[0], scope, awaitable_path or (EACH_ITEM,))
        elif word == "dict":
            for item in place.node.keywords:
                self._mark_deferred(item.value, scope, awaitable_path[1:])
        elif word == "enumerate" and arguments and awaitable_path[1:2] == (1,):
            # ``enumerate()`` yields pairs of a number and an item, and the item has index 1.
            self._mark_deferred(arguments[0], scope, (EACH_ITEM, *awaitable_path[2:]))
        elif (
            word == "zip"
            and len(awaitable_path) > 1
            and isinstance(awaitable_path[1], int)
            and awaitable_path[1] < len(arguments)
        ):
            # Each tuple of ``zip()`` has one item of each argument, so the index in the tuple is
            # the index of the argument.
            self._mark_deferred(
                arguments[awaitable_path[1]], scope, (EACH_ITEM, *awaitable_path[2:])
            )
        elif word == "map" and arguments:
            place.stays_awaitable = True
            self._mark_deferred_in_mapped_function(arguments[0], place, awaitable_path[1:])

    def _mark_deferred_in_mapped_function(
        self, function: Any, place: CallPlace, awaitable_path: Path
    ) -> None:
        """Mark the deferred calls whose results a function that is passed to ``map`` returns.

        Args:
            function: The expression that is passed to ``map``.
            place: The call of ``map``.
            awaitable_path: The indexes that lead from the function's result to the awaitables.
        """
        if isinstance(function, ast.Lambda):
            self._mark_deferred(function.body, self._syntax.scopes[id(function)], awaitable_path)
            return
        first_argument = Place(function, place.scope, container=place.node.args, key=0)
        self.passed_functions.append(first_argument)
        if isinstance(function, ast.Name):
            owner = place.scope.find(function.id)
            for scope in self._functions.by_name.get((id(owner), function.id), ()):
                self._mark_deferred_returns(scope, awaitable_path)

    def _mark_deferred_in_called_function(
        self, place: CallPlace, awaitable_path: Path, *, is_awaited: bool = False
    ) -> None:
        """Mark the deferred calls that make the result of a function of the script.

        Args:
            place: The call of the function.
            awaitable_path: The indexes that lead from the result to the awaitables; empty if the
                result itself is used as an awaitable.
            is_awaited: Whether the script awaits this call in place.
        """
        for scope in self._functions.targets(place):
            # Calling an async function makes a coroutine, which is the awaitable itself. The value
            # that the function returns then need not be an awaitable.
            is_coroutine_used = is_awaited or self._functions.is_async(scope)
            if awaitable_path or not is_coroutine_used:
                self._mark_deferred_returns(scope, awaitable_path)
        match place.node.func:
            case ast.Name(id=word):
                owner = place.scope.find(word)
                bindings = () if owner is None else owner.assigned_values.get(word, ())
                for value, _, _ in bindings:
                    if isinstance(value, ast.Lambda):
                        self._mark_deferred_in_lambda(value, awaitable_path)
            case _:
                pass

    def _mark_deferred_in_lambda(self, function: ast.Lambda, awaitable_path: Path) -> None:
        scope = self._syntax.scopes[id(function)]
        if self._is_first_visit(scope, "", awaitable_path):
            self._functions.may_return_awaitable.add(id(scope))
            self._mark_deferred(function.body, scope, awaitable_path)

    def _mark_deferred_returns(self, scope: Scope, awaitable_path: Path) -> None:
        """Mark the deferred calls in the values that a function returns or yields.

        Args:
            scope: The scope of the function.
            awaitable_path: The indexes that lead from the function's result to the awaitables.
        """
        if not self._is_first_visit(scope, "", awaitable_path):
            return
        self._functions.may_return_awaitable.add(id(scope))
        for value in scope.returns:
            self._mark_deferred(value, scope, awaitable_path)
        if scope.is_generator and awaitable_path:
            for value in scope.yields:
                self._mark_deferred(value, scope, awaitable_path[1:])

    def _is_first_visit(self, function: Scope, parameter: str, awaitable_path: Path) -> bool:
        """Return True if this method has not been called with these arguments before.

        Without this check, the analysis of a recursive function would never end.

        Args:
            function: The scope of the visited function.
            parameter: The name of the visited parameter, written as ``(name)``, so that it differs
                from a variable's name; ``""`` for the visit of the function's result.
            awaitable_path: The path to the awaitables in the argument or result.
        """
        visit = (id(function), parameter, awaitable_path)
        if visit in self._visited:
            return False
        self._visited.add(visit)
        return True

    def _mark_deferred_in_variable(self, word: str, scope: Scope, awaitable_path: Path) -> None:
        """Mark the deferred calls that make the values of a variable or parameter.

        Args:
            word: The variable's name.
            scope: The scope in which the script reads the variable.
            awaitable_path: The indexes that lead from the variable's value to the awaitables.
        """
        owner = scope.find(word)
        if owner is None:
            return
        if "param" in owner.binding_kinds[word] and owner.kind == "function":
            self._mark_deferred_arguments(owner, word, awaitable_path)
        self._mark_deferred_bindings(
            id(owner), word, owner.assigned_values.get(word, ()), awaitable_path
        )

    def _mark_deferred_bindings(
        self, owner: int, word: str, bindings: Sequence[Any], awaitable_path: Path
    ) -> None:
        """Mark the deferred calls whose results the script assigns to a variable or attribute.

        Args:
            owner: The ``id()`` of the scope that has the variable.
            word: The name of the variable or attribute.
            bindings: The assigned expressions, each with its scope and the path from its value to
                the part that is assigned.
            awaitable_path: The indexes that lead from the variable's value to the awaitables.
        """
        # A cycle of assignments would visit the name again and again, or with ever longer paths.
        if (owner, word, awaitable_path) in self._visited or len(awaitable_path) > _MAX_PATH_STEPS:
            return
        self._visited.add((owner, word, awaitable_path))
        for value, scope, binding_path in bindings:
            # ``items.append(value)`` binds ``items`` to the container of the value. The first step
            # from ``items`` then leads back to the value, so both steps cancel each other.
            step_count = binding_path.count(TO_CONTAINER)
            path_from_value = (*binding_path[step_count:], *awaitable_path[step_count:])
            self._mark_deferred(value, scope, path_from_value)

    def _mark_deferred_arguments(self, function: Scope, word: str, awaitable_path: Path) -> None:
        """Mark the deferred calls whose results the script passes for a parameter.

        Args:
            function: The scope of the function that has the parameter.
            word: The parameter's name.
            awaitable_path: The indexes that lead from the parameter's value to the awaitables.
        """
        # The parentheses keep the parameter apart from a variable of the same name.
        if not self._is_first_visit(function, f"({word})", awaitable_path):
            return
        # The parameter ``self`` of a method is not among the arguments of a call.
        is_method = function.parent is not None and function.parent.kind == "class"
        bound_parameters = 1 if is_method else 0
        vararg = function.node.args.vararg
        for place in self._functions.calls_of.get(id(function), ()):
            arguments: list[Any] = place.node.args
            for keyword in place.node.keywords:
                if keyword.arg == word:
                    self._mark_deferred(keyword.value, place.scope, awaitable_path)
            if vararg is not None and vararg.arg == word:
                # Each further argument is an item of ``*args``, so the first step is left out.
                for item in arguments[len(function.params) - bound_parameters :]:
                    self._mark_deferred(item, place.scope, awaitable_path[1:])
            elif word in function.params:
                index = function.params.index(word) - bound_parameters
                if 0 <= index < len(arguments):
                    self._mark_deferred(arguments[index], place.scope, awaitable_path)
