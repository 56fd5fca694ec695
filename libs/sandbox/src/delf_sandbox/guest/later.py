"""Detection of calls that must stay awaitable, by following their values."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from delf_sandbox.guest.functions import Functions
from delf_sandbox.guest.scopes import EACH_ITEM, CallPlace, Path, Place, Scope, ValuePart

_MAX_PATH_STEPS = 6


class DeferredCalls:
    """Finds the calls whose awaitables a script stores in order to await or gather them later.

    The rewriting must not await these calls in place. Each of the calls is marked by the attribute
    ``must_not_await_in_place``.

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
            node: The expression, such as ``tasks``.
            scope: The scope of the expression.
            path: The steps from the value to the awaitables: ``()`` if the script awaits the value
                itself, ``(0,)`` for ``tasks[0]``, ``(EACH_ITEM, 1)`` for the second member of each
                item.
        """
        match node:
            case ast.Call():
                self._mark_call(self._syntax.calls[id(node)], path)
            # ``tasks = await start_all()``: the result is awaited, but not the tasks in the result.
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
        """Mark the calls in ``tasks`` for ``tasks[number]``, ``tasks[1:]`` or ``*tasks``.

        The numbers are not evaluated, so all items are followed.
        """
        match node:
            case ast.Subscript(slice=ast.Slice()):  # ``tasks[1:][0]`` is not ``tasks[0]``
                path_in_collection = _to_any_item(path)
            case _:  # ``tasks[0]``, or each value of ``*tasks``, is an item of ``tasks``
                path_in_collection = (EACH_ITEM, *path)
        self._mark_calls_in(node.value, scope, path_in_collection)

    def _mark_calls_in_new_collection(self, node: ast.expr, scope: Scope, path: Path) -> None:
        """Mark the calls in the items of a display or comprehension, such as ``[send()]``."""
        path_in_item = path[1:]  # the first step leads from the collection to its item
        match node:
            # Only in a list or tuple can the first step be the index of one certain item.
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
        """Mark the calls in those items of a list or tuple that the script awaits later.

        For ``[send(1), send(2)]`` and the path ``(0,)``, only ``send(1)`` is marked.
        """
        wanted_index = path[0] if path else EACH_ITEM
        path_in_item = path[1:]
        may_be_wanted = wanted_index == EACH_ITEM
        for index, item in enumerate(items):
            # ``*tasks`` may stand for any number of items, so the indexes from here on are unknown.
            if isinstance(item, ast.Starred):
                may_be_wanted = True
            if index == wanted_index or may_be_wanted:
                self._mark_calls_in(item, scope, path_in_item)

    def _mark_call(self, place: CallPlace, path: Path) -> None:
        """Mark a call such as ``send()`` whose result the script awaits later.

        For a call such as ``list(tasks)``, mark the calls in its argument instead.
        """
        function = place.node.func
        if isinstance(function, ast.Name) and self._functions.is_builtin(function.id, place.scope):
            self._mark_calls_in_arguments_of_builtin(function.id, place, path)
            return
        is_result_awaited = not path  # otherwise the script awaits an item of the result
        if is_result_awaited:
            place.must_not_await_in_place = True
        # The object in ``tasks.pop()`` may be a list, or belong to a class of the script, whose
        # method ``pop`` returns the awaitable. Its type is unknown, so both are followed.
        if isinstance(function, ast.Attribute):
            self._mark_calls_in_result_of_method(function, place, path)
        self._mark_calls_in_results(function, place.scope, path)

    def _mark_calls_in_result_of_method(
        self, method: ast.Attribute, place: CallPlace, path: Path
    ) -> None:
        """Mark the calls in the collection ``tasks`` for a call such as ``tasks.pop()``.

        Args:
            method: The called attribute, such as ``tasks.pop``.
            place: The call.
            path: The path from the result to the awaitables.
        """
        collection, scope = method.value, place.scope
        match method.attr:
            case "values" | "copy":  # the result has the same items as ``tasks``
                self._mark_calls_in(collection, scope, path)
            case "items":  # the result has pairs, whose second members are the items of ``tasks``
                self._mark_calls_in(collection, scope, _without_pairs(path))
            case "get" | "pop" | "popleft":  # the result is an item of ``tasks``
                self._mark_calls_in(collection, scope, (EACH_ITEM, *path))
            # ``itertools.chain(first_tasks, second_tasks)`` is no method: its arguments are the
            # collections, and an item of the result may be any item of them.
            case "chain":
                for argument in place.node.args:
                    self._mark_calls_in(argument, scope, _to_any_item(path))
            case _:
                pass

    def _mark_calls_in_arguments_of_builtin(self, name: str, place: CallPlace, path: Path) -> None:
        """Mark the calls in the arguments of a builtin, such as in ``tasks`` of ``list(tasks)``.

        Args:
            name: The name of the builtin.
            place: The call of the builtin.
            path: The path from the builtin's result to the awaitables: for an awaited
                ``list(tasks)[0]``, the index 0.
        """
        scope = place.scope
        match name, place.node.args:
            case "list" | "tuple" | "iter", [collection, *_]:  # keeps the indexes of the items
                # To await all of ``list(start())`` is to await the items of ``start()``.
                is_whole_result_awaited = not path
                path_in_collection = (EACH_ITEM,) if is_whole_result_awaited else path
                self._mark_calls_in(collection, scope, path_in_collection)
            # ``sorted(tasks)[0]`` may be any item of ``tasks``.
            case "set" | "frozenset" | "reversed" | "sorted", [collection, *_]:
                self._mark_calls_in(collection, scope, _to_any_item(path))
            case "enumerate", [collection, *_]:  # the second member of each pair is an item
                self._mark_calls_in(collection, scope, _without_pairs(path))
            case "zip", collections:
                self._mark_calls_in_zipped(collections, scope, path)
            case "map", [function, *_]:
                self._mark_mapped_calls(function, place, path)
            case "dict", _:  # ``dict(first=send(1), second=send(2))``
                path_in_value = path[1:]  # without the step from the dict to the value
                for keyword in place.node.keywords:
                    self._mark_calls_in(keyword.value, scope, path_in_value)
            case _:
                pass

    def _mark_calls_in_zipped(
        self, collections: Sequence[ast.expr], scope: Scope, path: Path
    ) -> None:
        """Mark the calls in the arguments of ``zip``.

        In the result of ``zip(names, tasks)``, the path ``(0, 1)`` leads to the first tuple and to
        its task. In the arguments, ``(1, 0)`` leads to ``tasks`` and to the same task.
        """
        match path:
            case (tuple_index, argument_index, *path_in_item):
                path_in_collections = (argument_index, tuple_index, *path_in_item)
                self._mark_calls_in_items(collections, scope, path_in_collections)
            case _:
                pass

    def _mark_mapped_calls(self, function: ast.expr, place: CallPlace, path: Path) -> None:
        """Mark a call such as ``map(send, addresses)``, whose items the script awaits later.

        Args:
            function: The function that is passed to ``map``.
            place: The call of ``map``.
            path: The path from the result of ``map`` to the awaitables.
        """
        place.must_not_await_in_place = True
        # The rewriting replaces the argument 0, such as ``send``, by a function that returns
        # awaitables. A lambda stays, because the calls in the lambda are marked below.
        if not isinstance(function, ast.Lambda):
            argument = Place(function, place.scope, container=place.node.args, key=0)
            self.passed_functions.append(argument)
        path_in_item = path[1:]  # each item is a result of the function
        self._mark_calls_in_results(function, place.scope, path_in_item)

    def _mark_calls_in_results(self, function: ast.expr, scope: Scope, path: Path) -> None:
        """Mark the calls whose awaitables a function of the script returns.

        In ``gather(ask())`` with ``def ask(): return send()``, the awaitable of ``send()`` is
        passed to ``gather``, so ``send()`` is marked.

        Args:
            function: The expression that is called, such as ``ask``.
            scope: The scope of the expression.
            path: The path from the function's result to the awaitables.
        """
        is_result_awaited = not path  # otherwise the script awaits an item of the result
        for function_scope in self._functions.targets(function, scope):
            # With ``async def ask(): return send()``, ``gather`` awaits the coroutine ``ask()``.
            # Leave ``send()`` unmarked: the rewritten function ``ask`` awaits it.
            if is_result_awaited and self._functions.is_async(function_scope):
                continue
            self._mark_returned_calls(function_scope, path)
        for lambda_node in self._lambdas(function, scope):
            self._mark_returned_calls(self._syntax.scopes[id(lambda_node)], path)

    def _lambdas(self, function: ast.expr, scope: Scope) -> list[ast.Lambda]:
        """Return the lambdas that an expression may call.

        The expression may be a lambda itself, or a name to which the script assigns lambdas.
        """
        values = [function]
        if isinstance(function, ast.Name):
            owner = scope.find(function.id)
            parts = [] if owner is None else owner.assigned_values.get(function.id, [])
            values = [part.expression for part in parts]
        return [value for value in values if isinstance(value, ast.Lambda)]

    def _mark_returned_calls(self, function: Scope, path: Path) -> None:
        """Mark the calls in the values that a function or lambda returns or yields.

        Args:
            function: The scope of the function or lambda.
            path: The path from the function's result to the awaitables: ``(0,)`` if the script
                awaits ``ask()[0]`` later.
        """
        # The name "return" stands for the result. It is a keyword, so no variable has this name.
        if not self._is_first_visit(function, "return", path):
            return
        self._functions.returning_awaitables.add(id(function))
        for value in function.returns:
            self._mark_calls_in(value, function, path)
        if path:
            path_in_item = path[1:]  # each item of a generator is a yielded value
            for value in function.yields:
                self._mark_calls_in(value, function, path_in_item)

    def _mark_calls_in_variable(self, name: str, scope: Scope, path: Path) -> None:
        """Mark the calls that make the awaitables in the value of a variable or parameter."""
        owner = scope.find(name)
        if owner is None or not self._is_first_visit(owner, name, path):
            return
        if "param" in owner.binding_kinds[name] and owner.kind == "function":
            self._mark_calls_in_arguments(owner, name, path)
        self._mark_calls_in_parts(owner.assigned_values.get(name, ()), path)

    def _mark_calls_in_parts(self, parts: Sequence[ValuePart], path: Path) -> None:
        """Mark the calls in the expressions that the script stored in a variable or attribute."""
        for part in parts:
            # After ``tasks.append(send())``, the part ``send()`` has the depth 1, because
            # ``send()`` is an item of ``tasks``. If ``(EACH_ITEM,)`` leads from ``tasks`` to the
            # awaitable, ``()`` leads there from ``send()``: leave out the first step.
            path_in_part = path[part.container_depth :]
            # After ``task, user = start()``, the variable ``task`` has a part of the expression
            # ``start()``: the path ``(0,)`` leads from the value of ``start()`` to ``task``.
            path_in_expression = (*part.path, *path_in_part)
            self._mark_calls_in(part.expression, part.scope, path_in_expression)

    def _mark_calls_in_arguments(self, function: Scope, parameter: str, path: Path) -> None:
        """Mark the calls that create the awaitables in the arguments for a parameter.

        Args:
            function: The scope of the function.
            parameter: The name of the parameter.
            path: The path from the parameter's value to the awaitables: ``(0,)`` if the function
                awaits ``tasks[0]`` of its parameter ``tasks``.
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
            # The arguments are searched like a list, so a path begins with the argument's index.
            if parameter in positional:
                path_in_arguments = (positional.index(parameter), *path)
                self._mark_calls_in_items(arguments, place.scope, path_in_arguments)
            # For a parameter ``*tasks``, the path already begins with an index.
            elif vararg is not None and vararg.arg == parameter:
                items_of_vararg = arguments[len(positional) :]
                self._mark_calls_in_items(items_of_vararg, place.scope, path)

    def _is_first_visit(self, owner: object, name: str, path: Path) -> bool:
        """Return False if a name was visited before with this path, or if the path is too long.

        Without this check, the analysis of a recursive function would never end. In
        ``def walk(tasks): walk(tasks[0])``, each visit of ``tasks`` has a longer path.

        Args:
            owner: The scope of a variable or parameter; the whole script for an attribute.
            name: The name of the variable, parameter or attribute.
            path: The steps, such as indexes, from the value of the name to the awaitables.
        """
        visit = (id(owner), name, path)
        if visit in self._visited or len(path) > _MAX_PATH_STEPS:
            return False
        self._visited.add(visit)
        return True


def _to_any_item(path: Path) -> Path:
    """Return a path that leads to each item of a collection, such as ``("*",)`` for ``(0,)``."""
    return (EACH_ITEM, *path[1:])


def _without_pairs(path: Path) -> Path:
    """Return the path from ``tasks``, given the path from ``enumerate(tasks)``.

    The path ``(EACH_ITEM, 1)`` leads from ``enumerate(tasks)`` to each pair, and then to the task
    in the pair. The path ``(EACH_ITEM,)`` leads from ``tasks`` to the same tasks.
    """
    path_in_task = path[2:]
    return (EACH_ITEM, *path_in_task)
