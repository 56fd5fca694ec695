"""Detection of calls that must stay awaitable, by following their values."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from delf_sandbox.guest.functions import Functions
from delf_sandbox.guest.names import BUILTINS
from delf_sandbox.guest.scopes import EACH, OUT_OF, CallPlace, Path, Place, Scope

_COLLECTIONS = frozenset({"list", "tuple", "set", "frozenset", "iter", "reversed", "sorted"})

_MAX_PATH_STEPS = 6


class DeferredCalls:
    """Finds the calls whose awaitables a script stores, and awaits or gathers later.

    The attribute ``stays_awaitable`` marks these calls, which must not be awaited in place.

    Args:
        functions: The functions of the script.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._syntax = functions.syntax
        self.passed_functions: list[Place] = []
        """The functions that the script passes to ``map`` and whose results it awaits later."""
        self._visited: set[tuple[int, str, Path]] = set()
        for expression, scope, path in self._syntax.awaitables:
            self._mark(expression, scope, path)

    def _mark(self, node: Any, scope: Scope, path: Path) -> None:
        """Find the calls whose results are at a path in an expression's value, and mark them.

        A marked call must return an awaitable instead of its result. The path consists of keys and
        indexes; an empty path leads to the expression's value itself.
        """
        match node:
            case ast.Call():
                self._mark_call(node, path)
            case ast.Starred(value=inner) | ast.Subscript(value=inner):
                self._mark(inner, scope, (EACH, *path))
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                self._mark_items(items, scope, path)
            case ast.Dict(values=items):
                for item in items:
                    self._mark(item, scope, path[1:])
            case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
                self._mark(item, self._syntax.scopes[id(node)], path[1:])
            case ast.DictComp(value=item):
                self._mark(item, self._syntax.scopes[id(node)], path[1:])
            case ast.Name(id=word):
                self._mark_name(word, scope, path)
            case ast.Attribute(attr=attribute):
                self._mark_bindings(
                    id(self._syntax), attribute, self._syntax.stores.get(attribute, ()), path
                )
            case ast.IfExp(body=first, orelse=second) | ast.BinOp(left=first, right=second):
                self._mark(first, scope, path)
                self._mark(second, scope, path)
            case ast.BoolOp(values=items):
                for item in items:
                    self._mark(item, scope, path)
            # The awaited result may hold awaitables, such as the list of tasks of a helper.
            case ast.Await(value=ast.Call() as inner):
                self._mark_results(self._syntax.calls[id(inner)], path, is_awaited=True)
            case _:
                pass

    def _mark_items(self, items: Sequence[Any], scope: Scope, path: Path) -> None:
        first_step = path[0] if path else EACH
        for index, item in enumerate(items):
            if isinstance(item, ast.Starred):
                self._mark(item.value, scope, path)
            # The script uses the items to which the path does not lead as plain results, so the
            # calls that make them must be awaited in place.
            elif first_step in (EACH, index):
                self._mark(item, scope, path[1:])

    def _mark_call(self, node: ast.Call, path: Path) -> None:
        """Mark a call whose result is an awaitable.

        If the result comes from a collection or an argument, mark the calls that made the items
        or the argument.
        """
        place = self._syntax.calls[id(node)]
        scope, arguments = place.scope, node.args
        match node.func:
            case ast.Name(id=word) if word in BUILTINS and scope.find(word) is None:
                self._mark_in_builtin(word, place, path)
                return
            case ast.Attribute(value=inner, attr="values" | "copy"):
                self._mark(inner, scope, path)
            # ``items()`` yields pairs of a key and a value, of which only the value (index 1) can
            # be an awaitable.
            case ast.Attribute(value=inner, attr="items") if path[1:2] == (1,):
                self._mark(inner, scope, (EACH, *path[2:]))
            case ast.Attribute(value=inner, attr="get" | "pop" | "popleft"):
                self._mark(inner, scope, (EACH, *path))
            case ast.Attribute(attr="chain"):
                for item in arguments:
                    self._mark(item, scope, path)
            case _:
                pass
        if not path:
            place.stays_awaitable = True
        self._mark_results(place, path)

    def _mark_in_builtin(self, word: str, place: CallPlace, path: Path) -> None:
        """Mark the calls in a builtin's arguments whose results are at a path in its result.

        Args:
            word: The name of the builtin, such as ``zip``.
            place: The call of the builtin.
            path: The path in the builtin's result.
        """
        arguments, scope = place.node.args, place.scope
        if word in _COLLECTIONS and arguments:
            self._mark(arguments[0], scope, path or (EACH,))
        elif word == "dict":
            for item in place.node.keywords:
                self._mark(item.value, scope, path[1:])
        elif word == "enumerate" and arguments and path[1:2] == (1,):
            # ``enumerate()`` yields pairs of an index and an item.
            self._mark(arguments[0], scope, (EACH, *path[2:]))
        elif (
            word == "zip"
            and len(path) > 1
            and isinstance(path[1], int)
            and path[1] < len(arguments)
        ):
            # Each tuple of ``zip()`` has one item of each argument.
            self._mark(arguments[path[1]], scope, (EACH, *path[2:]))
        elif word == "map" and arguments:
            place.stays_awaitable = True
            self._mark_function(arguments[0], place, path[1:])

    def _mark_function(self, function: Any, place: CallPlace, path: Path) -> None:
        """Mark the calls whose results are returned by a function that is passed to ``map``."""
        if isinstance(function, ast.Lambda):
            self._mark(function.body, self._syntax.scopes[id(function)], path)
            return
        self.passed_functions.append(Place(function, place.scope, place.node.args, 0))
        if isinstance(function, ast.Name):
            owner = place.scope.find(function.id)
            for scope in self._functions.by_name.get((id(owner), function.id), ()):
                self._mark_returns(scope, path)

    def _mark_results(self, place: CallPlace, path: Path, *, is_awaited: bool = False) -> None:
        """Mark the calls whose awaitables a function of the script returns.

        Args:
            place: The call of one of the script's functions.
            path: The path to the awaitables in the function's result.
            is_awaited: Whether the script awaits the function's result itself.
        """
        for scope in self._functions.targets(place):
            # Without a path, the awaitable is the result itself. An async function makes this
            # awaitable (its coroutine), whatever it returns. An awaited result is no awaitable.
            returns_awaitable = not (is_awaited or self._functions.is_async(scope))
            if path or returns_awaitable:
                self._mark_returns(scope, path)
        match place.node.func:
            case ast.Name(id=word):
                owner = place.scope.find(word)
                bindings = () if owner is None else owner.binds.get(word, ())
                for value, _, _ in bindings:
                    if isinstance(value, ast.Lambda):
                        self._mark_lambda_result(value, path)
            case _:
                pass

    def _mark_lambda_result(self, function: ast.Lambda, path: Path) -> None:
        scope = self._syntax.scopes[id(function)]
        if self._is_first_visit(scope, "", path):
            self._functions.may_return_awaitable.add(id(scope))
            self._mark(function.body, scope, path)

    def _mark_returns(self, scope: Scope, path: Path) -> None:
        if not self._is_first_visit(scope, "", path):
            return
        self._functions.may_return_awaitable.add(id(scope))
        for value in scope.returns:
            self._mark(value, scope, path)
        if scope.is_generator and path:
            for value in scope.yields:
                self._mark(value, scope, path[1:])

    def _is_first_visit(self, function: Scope, parameter: str, path: Path) -> bool:
        """Return True if this method has not been called with these arguments before.

        Without this check, the analysis of a recursive function would never end.

        Args:
            function: The scope of the visited function.
            parameter: The name of the visited parameter, written ``(name)``; empty for the
                function's result.
            path: The path to the awaitables in the argument or result.
        """
        visit = (id(function), parameter, path)
        if visit in self._visited:
            return False
        self._visited.add(visit)
        return True

    def _mark_name(self, word: str, scope: Scope, path: Path) -> None:
        owner = scope.find(word)
        if owner is None:
            return
        if "param" in owner.names[word] and owner.kind == "function":
            self._mark_arguments(owner, word, path)
        self._mark_bindings(id(owner), word, owner.binds.get(word, ()), path)

    def _mark_bindings(self, owner: int, word: str, bindings: Sequence[Any], path: Path) -> None:
        """Mark the calls whose results the script binds to a name or attribute."""
        # A cycle of assignments would visit the name again and again, or with ever longer paths.
        if (owner, word, path) in self._visited or len(path) > _MAX_PATH_STEPS:
            return
        self._visited.add((owner, word, path))
        for value, scope, binding_path in bindings:
            # In ``items.append(value)``, the first step of a path from ``items`` leads to the
            # value, so a path from the value starts after this step.
            skipped_steps = binding_path.count(OUT_OF)
            self._mark(value, scope, (*binding_path[skipped_steps:], *path[skipped_steps:]))

    def _mark_arguments(self, function: Scope, word: str, path: Path) -> None:
        """Mark the calls whose results the script passes as an argument for a parameter."""
        if not self._is_first_visit(function, f"({word})", path):
            return
        # The parameter ``self`` of a method is not among the arguments of a call.
        is_method = function.parent is not None and function.parent.kind == "class"
        bound_parameters = 1 if is_method else 0
        vararg = function.node.args.vararg
        for place in self._functions.calls_of.get(id(function), ()):
            arguments: list[Any] = place.node.args
            for keyword in place.node.keywords:
                if keyword.arg == word:
                    self._mark(keyword.value, place.scope, path)
            if vararg is not None and vararg.arg == word:
                for item in arguments[len(function.params) - bound_parameters :]:
                    self._mark(item, place.scope, path[1:])
            elif word in function.params:
                index = function.params.index(word) - bound_parameters
                if 0 <= index < len(arguments):
                    self._mark(arguments[index], place.scope, path)
