"""Detection of calls that must stay awaitable, by following their values."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from delf_sandbox.guest.functions import Functions
from delf_sandbox.guest.names import BUILTINS
from delf_sandbox.guest.scopes import EACH_ITEM, CallPlace, Path, Place, Scope, ValuePart

_MAX_PATH_STEPS = 6


class DeferredCalls:
    """Finds the calls whose awaitables a script stores in order to await or gather them later.

    The rewriting must not await these calls in place. The attribute ``is_await_deferred`` marks
    each of the calls.

    The analysis follows each awaited value back to its calls. For ``tasks = [send(1), send(2)]``
    and ``await tasks[0]``, the method :meth:`_mark_calls_in` visits in turn:

    - ``tasks[0]`` with the path ``()``
    - ``tasks`` with the path ``(EACH_ITEM,)``
    - ``[send(1), send(2)]`` with the path ``(EACH_ITEM,)``
    - ``send(1)`` and ``send(2)`` with the path ``()``: these calls are marked

    The parameter ``path`` of the methods leads from a value to the awaitables inside the value. An
    empty path stands for the value itself, or for all its items if the value is a collection.

    Args:
        functions: The functions of the script.
    """

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._syntax = functions.syntax
        self.passed_functions: list[Place] = []
        """The functions that the script passes to ``map`` and whose results it awaits later."""
        self._visited: set[tuple[int, str, Path]] = set()
        for part in self._syntax.awaitables:
            self._mark_calls_in(part.expression, part.scope, part.path)

    def _mark_calls_in(self, node: ast.expr, scope: Scope, path: Path) -> None:
        """Mark the calls that create the awaitables in the value of an expression.

        Args:
            node: The expression.
            scope: The scope of the expression.
            path: The path from the value to the awaitables.
        """
        match node:
            case ast.Call():
                self._mark_call(self._syntax.calls[id(node)], path)
            # An awaited result may contain awaitables, such as a list of tasks.
            case ast.Await(value=ast.Call(func=function)) if path:
                self._mark_calls_in_results(function, scope, path)
            case ast.Name(id=name):
                self._mark_calls_in_variable(name, scope, path)
            case ast.Attribute(attr=name):
                self._mark_calls_in_attribute(name, path)
            case ast.IfExp(body=first, orelse=second):
                self._mark_calls_in_all([first, second], scope, path)
            case ast.BoolOp(values=choices):
                self._mark_calls_in_all(choices, scope, path)
            case ast.BinOp(left=first, right=second):  # ``tasks + more_tasks``
                self._mark_calls_in_all([first, second], scope, _to_any_item(path))
            case ast.Subscript() | ast.Starred():
                self._mark_calls_in_selected_items(node, scope, path)
            case _:
                self._mark_calls_in_new_collection(node, scope, path)

    def _mark_calls_in_all(self, nodes: Sequence[ast.expr], scope: Scope, path: Path) -> None:
        for node in nodes:
            self._mark_calls_in(node, scope, path)

    def _mark_calls_in_attribute(self, name: str, path: Path) -> None:
        """Mark the calls in the values that the script assigns to an attribute.

        The type of the object in ``self.tasks`` is unknown, so the attributes ``tasks`` of all
        objects are followed.
        """
        if self._is_first_visit(self._syntax, name, path):
            self._mark_calls_in_parts(self._syntax.stores.get(name, ()), path)

    def _mark_calls_in_selected_items(
        self, node: ast.Subscript | ast.Starred, scope: Scope, path: Path
    ) -> None:
        """Mark the calls in a collection of which the script uses one item, a slice or all items.

        The collection is ``tasks`` in ``tasks[number]``, ``tasks[1:]`` and ``*tasks``. Which items
        the script selects is unknown, so all items are followed.
        """
        is_slice = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
        path_in_collection = _to_any_item(path) if is_slice else (EACH_ITEM, *path)
        self._mark_calls_in(node.value, scope, path_in_collection)

    def _mark_calls_in_new_collection(self, node: ast.expr, scope: Scope, path: Path) -> None:
        """Mark the calls in the items of a display or comprehension, such as ``[send()]``."""
        path_in_item = path[1:]  # the first step leads from the collection to its item
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items):
                self._mark_calls_in_items(items, scope, path)
            case ast.Set(elts=items) | ast.Dict(values=items):
                self._mark_calls_in_all(items, scope, path_in_item)
            case (
                ast.ListComp(elt=item)
                | ast.SetComp(elt=item)
                | ast.GeneratorExp(elt=item)
                | ast.DictComp(value=item)
            ):
                self._mark_calls_in(item, self._syntax.scopes[id(node)], path_in_item)
            case _:
                pass

    def _mark_calls_in_items(self, items: Sequence[ast.expr], scope: Scope, path: Path) -> None:
        """Mark the calls in the items of a list or tuple to which the path leads.

        The other items are plain results for the script, so their calls are awaited in place.
        """
        wanted_index, *path_in_item = path or (EACH_ITEM,)
        marks_all = wanted_index == EACH_ITEM
        for index, item in enumerate(items):
            # How many items ``*tasks`` has is unknown, so this item or any later one may be meant.
            if isinstance(item, ast.Starred):
                marks_all = True
            if index == wanted_index or marks_all:
                self._mark_calls_in(item, scope, tuple(path_in_item))

    def _mark_call(self, place: CallPlace, path: Path) -> None:
        """Mark a call whose result is awaited later, and the calls that made the result."""
        function = place.node.func
        if isinstance(function, ast.Name) and function.id in BUILTINS:
            is_builtin = place.scope.find(function.id) is None
            if is_builtin:
                self._mark_calls_in_arguments_of_builtin(function.id, place, path)
                return
        # The type of the object in ``tasks.pop()`` is unknown. The method may be that of a list,
        # or that of a class of the script, so both are followed.
        if isinstance(function, ast.Attribute):
            self._mark_calls_in_result_of_method(function, place, path)
        if not path:  # the result itself is awaited, not an item of the result
            place.is_await_deferred = True
        self._mark_calls_in_results(function, place.scope, path)

    def _mark_calls_in_result_of_method(
        self, method: ast.Attribute, place: CallPlace, path: Path
    ) -> None:
        """Mark the calls that make the awaitables in a result such as ``tasks.pop()``.

        Args:
            method: The called attribute, such as ``tasks.pop``.
            place: The call.
            path: The path from the result to the awaitables.
        """
        collection, scope = method.value, place.scope
        match method.attr:
            case "values" | "copy":  # the result has the same items as the collection
                self._mark_calls_in(collection, scope, path)
            case "items":
                self._mark_calls_in(collection, scope, _without_pairs(path))
            case "get" | "pop" | "popleft":  # the result is an item of the collection
                self._mark_calls_in(collection, scope, (EACH_ITEM, *path))
            # In ``itertools.chain(first_tasks, second_tasks)``, the arguments are the collections.
            case "chain":
                for argument in place.node.args:
                    self._mark_calls_in(argument, scope, _to_any_item(path))
            case _:
                pass

    def _mark_calls_in_arguments_of_builtin(self, name: str, place: CallPlace, path: Path) -> None:
        """Mark the calls in the arguments of a builtin.

        Args:
            name: The name of the builtin.
            place: The call of the builtin.
            path: The path from the builtin's result to the awaitables.
        """
        scope = place.scope
        match name, place.node.args:
            case (
                "list" | "tuple" | "iter" | "set" | "frozenset" | "reversed" | "sorted",
                [collection, *_],
            ):
                self._mark_calls_in(collection, scope, _to_any_item(path))
            case "enumerate", [collection, *_]:
                self._mark_calls_in(collection, scope, _without_pairs(path))
            case "zip", collections:
                self._mark_calls_in_zipped(collections, scope, path)
            case "map", [function, *_]:
                self._mark_mapped_calls(function, place, path)
            case "dict", _:  # ``dict(first=send(1), second=send(2))``
                for keyword in place.node.keywords:
                    self._mark_calls_in(keyword.value, scope, path[1:])
            case _:
                pass

    def _mark_calls_in_zipped(
        self, collections: Sequence[ast.expr], scope: Scope, path: Path
    ) -> None:
        """Mark the calls in the collections that are the arguments of ``zip``.

        The awaitable ``zip(names, tasks)[0][1]`` is ``tasks[0]``, an item of the collection 1.
        """
        match path:
            case (item_index, collection_index, *path_in_item):
                path_in_collections = (collection_index, item_index, *path_in_item)
                self._mark_calls_in_items(collections, scope, path_in_collections)
            case _:
                pass

    def _mark_mapped_calls(self, function: ast.expr, place: CallPlace, path: Path) -> None:
        """Mark a call of ``map``, and the calls that the passed function makes.

        Args:
            function: The function that is passed to ``map``.
            place: The call of ``map``.
            path: The path from the result of ``map`` to the awaitables.
        """
        # The script awaits the items itself, so the call of ``map`` must stay as it is.
        place.is_await_deferred = True
        if not isinstance(function, ast.Lambda):
            passed = Place(function, place.scope, container=place.node.args, key=0)
            self.passed_functions.append(passed)
        self._mark_calls_in_results(function, place.scope, path[1:])

    def _mark_calls_in_results(self, function: ast.expr, scope: Scope, path: Path) -> None:
        """Mark the calls that make the awaitables in the results of a function of the script.

        After ``def ask(): return send()`` and ``gather(ask())``, the call ``send()`` is marked, so
        that ``ask()`` returns an awaitable.

        Args:
            function: The expression that is called, such as ``ask``.
            scope: The scope of the expression.
            path: The path from the function's result.
        """
        for function_scope in self._functions.targets(function, scope):
            # After ``async def ask(): return send()`` and ``gather(ask())``, the coroutine
            # ``ask()`` is the awaitable, so that ``send()`` can be awaited in place.
            is_result_awaitable = not path and self._functions.is_async(function_scope)
            if not is_result_awaitable:
                self._mark_returned_calls(function_scope, path)
        for lambda_node in self._lambdas(function, scope):
            self._mark_returned_calls(self._syntax.scopes[id(lambda_node)], path)

    def _lambdas(self, function: ast.expr, scope: Scope) -> list[ast.Lambda]:
        """Return the lambdas that a called expression stands for: itself, or values of its name."""
        values = [function]
        if isinstance(function, ast.Name):
            owner = scope.find(function.id)
            parts = [] if owner is None else owner.assigned_values.get(function.id, [])
            values = [part.expression for part in parts]
        return [value for value in values if isinstance(value, ast.Lambda)]

    def _mark_returned_calls(self, function: Scope, path: Path) -> None:
        """Mark the calls whose awaitables a function or lambda returns or yields."""
        # No variable has the name "return", which is a keyword.
        if not self._is_first_visit(function, "return", path):
            return
        self._functions.may_return_awaitable.add(id(function))
        for value in function.returns:
            self._mark_calls_in(value, function, path)
        if path:
            # The result of a generator is a collection of the yielded values.
            for value in function.yields:
                self._mark_calls_in(value, function, path[1:])

    def _mark_calls_in_variable(self, name: str, scope: Scope, path: Path) -> None:
        """Mark the calls that make the awaitables in the value of a variable or parameter."""
        owner = scope.find(name)
        if owner is None or not self._is_first_visit(owner, name, path):
            return
        if "param" in owner.binding_kinds[name] and owner.kind == "function":
            self._mark_calls_in_arguments(owner, name, path)
        self._mark_calls_in_parts(owner.assigned_values.get(name, ()), path)

    def _mark_calls_in_parts(self, parts: Sequence[ValuePart], path: Path) -> None:
        """Mark the calls that make the awaitables in the values of a variable or attribute."""
        for part in parts:
            # After ``tasks.append(send())``, the part ``send()`` has the depth 1: the first step of
            # the path leads from ``tasks`` to this part.
            path_in_part = path[part.container_depth :]
            self._mark_calls_in(part.expression, part.scope, (*part.path, *path_in_part))

    def _mark_calls_in_arguments(self, function: Scope, parameter: str, path: Path) -> None:
        """Mark the calls in the arguments that the script passes for a parameter.

        Args:
            function: The scope of the function.
            parameter: The name of the parameter.
            path: The path from the parameter's value to the awaitables.
        """
        is_method = function.parent is not None and function.parent.kind == "class"
        # The argument for ``self`` is the object before the method's name.
        positional = function.params[1:] if is_method else function.params
        vararg = function.node.args.vararg
        for place in self._functions.calls_of.get(id(function), ()):
            arguments = place.node.args
            for keyword in place.node.keywords:
                if keyword.arg == parameter:
                    self._mark_calls_in(keyword.value, place.scope, path)
            if parameter in positional:
                index = positional.index(parameter)  # the first step, which selects the argument
                self._mark_calls_in_items(arguments, place.scope, (index, *path))
            elif vararg is not None and vararg.arg == parameter:
                items_of_vararg = arguments[len(positional) :]
                self._mark_calls_in_items(items_of_vararg, place.scope, path)

    def _is_first_visit(self, owner: object, name: str, path: Path) -> bool:
        """Return False if a name was visited before, or if the path is too long.

        Without this check, the analysis of a recursive function would never end. In
        ``def walk(tasks): walk(tasks[0])``, each visit of ``tasks`` has a longer path.

        Args:
            owner: The scope that has the name; for an attribute, the script's syntax.
            name: The name of a variable, parameter or attribute.
            path: The path from the value of the name.
        """
        visit = (id(owner), name, path)
        if visit in self._visited or len(path) > _MAX_PATH_STEPS:
            return False
        self._visited.add(visit)
        return True


def _to_any_item(path: Path) -> Path:
    """Return a path that leads to each item of a collection instead of one item."""
    return (EACH_ITEM, *path[1:])


def _without_pairs(path: Path) -> Path:
    """Return the path from a collection, given the path from its ``items()`` or ``enumerate``.

    In ``for number, task in enumerate(tasks): await task``, the path from ``enumerate(tasks)`` is
    ``(EACH_ITEM, 1)``, to each pair and then to the task. The path from ``tasks`` is
    ``(EACH_ITEM,)``.
    """
    return (EACH_ITEM, *path[2:])
