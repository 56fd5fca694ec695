"""The objects that the expressions of scripts create, change and share."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from delf_engine.origins.library import (
    CHANGING_METHODS,
    CONSTRUCTORS,
    CONSUMING_FUNCTIONS,
    HARMLESS_BUILTINS,
    ITERATORS_OF_ITERATORS,
    sources_added_by_method,
)
from delf_engine.origins.names import Names
from delf_engine.origins.sources import Sources, as_enclosed
from delf_engine.origins.syntax import (
    argument_values,
    base_variables,
    dotted,
    last_name,
    names_in,
    receiver_and_method,
    root_of,
)
from delf_engine.origins.variables import Variables

# Expressions that create a new object, to which no variable refers yet.
_NEW_OBJECTS: Final = (
    *(ast.List, ast.Dict, ast.Set, ast.Tuple, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.BinOp, ast.Compare, ast.Constant, ast.JoinedStr),
)


class Changes:
    """Records in the variables which objects the expressions of scripts share and change.

    Args:
        names: The names in the expressions, and what each name stands for.
        variables: The variables, which hold what is recorded.
    """

    def __init__(self, names: Names, variables: Variables) -> None:
        self._names = names
        self._variables = variables

    def record_assignment(self, name: str, value: ast.expr) -> None:
        """Record the objects to which a variable may refer after an assignment of a value."""
        self.record_contents(name, value)
        if not self._creates_object(value):  # such as ``a = b``
            self._variables.add_alias(name)

    def record_contents(self, name: str, value: ast.AST) -> None:
        """Record that a variable or function may share objects with the variables in a value.

        For example, ``a`` shares an object with ``b`` after ``a = b`` and after ``a = [b]``.
        """
        self._variables.add_contained(name, names_in(value))
        if self.creates_iterator(value):
            self._variables.add_iterator(name)

    def record_change(self, node: ast.AST, sources: Sources, *added: ast.AST) -> None:
        """Record that an object is changed in place, as by ``rows.append(record)``.

        Args:
            node: The expression of the object, such as ``rows`` or ``a["rows"]``.
            sources: The actions and fields from which the change comes.
            added: The expressions whose values the object may contain afterwards.
        """
        is_part_changed = not isinstance(node, ast.Name)
        if is_part_changed:
            # After ``a["rows"].append(record)``, a script that reads only the field ``a["rows"]``
            # still gets the whole record, and not a field of the record.
            sources = as_enclosed(sources)
        for name in base_variables(node):
            for expression in added:
                self.record_contents(name, expression)
            self._variables.record_change(name, sources, is_part_changed=is_part_changed)

    def record_reading(self, node: ast.expr, *, decided_by: Sources = frozenset()) -> None:
        """Record that a script reads an object, which changes an iterator or a defaultdict.

        Args:
            node: The expression of the object.
            decided_by: The actions and fields whose values decide how far an iterator moves on, or
                which key a defaultdict gets. Omit these if the object is read to its end.
        """
        for name in base_variables(node):
            self._variables.record_reading(name, decided_by)

    def record_call(
        self, call: ast.Call, argument_sources: Sources, result_sources: Sources
    ) -> None:
        """Record the objects that a method, builtin or unknown function changes.

        Args:
            call: The call.
            argument_sources: The sources of the arguments, and of the results of lambdas among
                them.
            result_sources: The sources of the result, which may come from all that the function
                reads.
        """
        receiver, method = receiver_and_method(call.func)
        arguments = argument_values(call)
        values = [receiver, *arguments]
        if _changes_receiver(receiver, method):  # such as ``rows.append(record)``
            self.record_change(receiver, sources_added_by_method(method, argument_sources), call)
        elif self._names.may_change_arguments(call.func) or any(map(self._is_unknown, arguments)):
            # An unknown argument may be a function that is called, such as ``operator.iadd`` in
            # ``map(operator.iadd, tables, rows)``.
            self._record_unknown_changes(values, result_sources)
        # Even ``zip(numbers, rows)`` changes the iterator ``numbers``, by moving it on.
        for value in values:
            self.record_reading(value, decided_by=result_sources)

    def _is_unknown(self, value: ast.expr) -> bool:
        """Return whether nothing is known of a value, which may then be any object or function."""
        return self._variables.may_be_any_object(root_of(dotted(value)))

    def _record_unknown_changes(self, values: Iterable[ast.expr], sources: Sources) -> None:
        """Record that a function may put each of its arguments into each other argument.

        Args:
            values: The arguments, and the object of a method.
            sources: The actions and fields from which the changes come.
        """
        variables: set[str] = set()
        for value in values:
            if self._may_share_object(value):
                variables.update(base_variables(value))
        self._variables.exchange_objects(variables)
        self._variables.record_change_inside(variables, sources)

    def _may_share_object(self, value: ast.expr) -> bool:
        """Return whether a value may be or contain an object to which a variable refers.

        The values of ``rows``, ``[rows]`` and ``make(rows)`` may. A text, a comparison and an
        action's result contain only new objects.
        """
        if isinstance(value, ast.Call):
            is_action = self._names.parameters_of_action(value) is not None
            return not is_action
        return not isinstance(value, (ast.Constant, ast.JoinedStr, ast.Compare))

    def _creates_object(self, value: ast.expr) -> bool:
        """Return whether an expression creates a new object, to which no variable refers yet."""
        if isinstance(value, ast.Await):
            value = value.value
        if not isinstance(value, ast.Call):
            return isinstance(value, _NEW_OBJECTS)
        if self._names.parameters_of_action(value) is not None:
            return True  # an action returns a new object
        name = dotted(value.func)
        if self._names.is_bound(name):
            return False  # after ``list = my_list``, ``list()`` may return an existing object
        return name.rpartition(".")[2] in CONSTRUCTORS

    def creates_iterator(self, node: ast.AST, *, is_consumed: bool = False) -> bool:
        """Return whether an expression creates an iterator or defaultdict, or a list with one.

        Args:
            node: The expression.
            is_consumed: Whether the value of the expression is read to its end at once, as ``map``
                in ``list(map(str, rows))``. Then only the items of the value can be iterators, as
                in ``list(map(iter, rows))``.
        """
        match node:
            case ast.GeneratorExp():
                return not is_consumed or self._has_part_with_iterator(node)
            case ast.Name(id=name) | ast.Attribute(attr=name) if self._names.is_iterator_function(
                name
            ):
                return True  # the function itself, as in ``map(iter, lists)``
            case ast.Starred(value=rows) | ast.comprehension(iter=rows):  # such as ``[*rows]``
                return self.creates_iterator(rows, is_consumed=True)
            case ast.Call() if self._names.parameters_of_action(node) is not None:
                return False  # an action returns data, and no iterator
            case ast.Call():
                return self._call_creates_iterator(node, is_consumed=is_consumed)
            case _:
                return self._has_part_with_iterator(node)

    def _call_creates_iterator(self, call: ast.Call, *, is_consumed: bool) -> bool:
        """Do the work of :meth:`creates_iterator` for a call that calls no action."""
        function = last_name(call.func)
        returns_iterator = self._names.returns_iterator(call)
        # ``list(map(str, rows))`` leaves no iterator, but ``list(groupby(rows))`` has iterators as
        # its items.
        is_left = not is_consumed or function in ITERATORS_OF_ITERATORS
        if returns_iterator and is_left:
            return True
        # A script that reads ``map(str, rows)`` to its end also reads ``rows`` to its end. An
        # unknown function may return its arguments unread.
        consumes_arguments = returns_iterator or function in CONSUMING_FUNCTIONS
        return any(
            self.creates_iterator(each, is_consumed=consumes_arguments)
            for each in argument_values(call)
        )

    def _has_part_with_iterator(self, node: ast.AST) -> bool:
        return any(map(self.creates_iterator, ast.iter_child_nodes(node)))


def _changes_receiver(receiver: ast.expr, method: str) -> bool:
    """Return whether a method, such as ``append``, changes its object and no argument."""
    # ``list.append(rows, row)`` changes its argument ``rows``, and not the receiver ``list``.
    is_receiver_builtin = dotted(receiver) in HARMLESS_BUILTINS
    return method in CHANGING_METHODS and not is_receiver_builtin
