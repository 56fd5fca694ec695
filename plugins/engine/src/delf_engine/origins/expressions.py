"""Reading the expressions of scripts: the sources of their values, and what they assign."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from delf_engine.origins.action_calls import ActionCalls
from delf_engine.origins.blocks import Blocks
from delf_engine.origins.changes import Changes
from delf_engine.origins.library import (
    PASSED_CHANGING_METHODS,
    fields_read_by_call,
    fields_read_by_key,
    sources_of_function_result,
)
from delf_engine.origins.names import Names
from delf_engine.origins.sources import (
    UNKNOWN,
    Source,
    Sources,
    as_enclosed,
    sources_of_action_result,
    sources_of_field,
    without_results,
    without_whole_results,
)
from delf_engine.origins.syntax import (
    Function,
    argument_values,
    arguments_of,
    arguments_of_action,
    base_variables,
    dotted,
    item_of,
    names_in,
    parameter_names,
    receiver_and_method,
)
from delf_engine.origins.variables import Variables

_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class _Binding(NamedTuple):
    """A variable to which a loop assigns its rows, or a part of each row."""

    target: ast.expr
    sources: Sources
    """The actions and fields from which the values come."""
    value: ast.expr
    """An expression that stands for the values."""


class ExpressionReader:
    """Finds the sources of expressions, and records what the expressions assign and change.

    To read a call of a function that the script defines, the reader does not enter the function: it
    binds the parameters, and uses what an earlier pass over the scripts found in the body.

    Args:
        names: The names in the expressions, and what each name stands for.
        variables: The variables, to which the reader adds sources.
        blocks: The blocks around the expression.
        changes: Records the objects that the expressions share and change.
        action_calls: The calls of actions, to which the reader adds each call.
    """

    def __init__(
        self,
        names: Names,
        variables: Variables,
        blocks: Blocks,
        changes: Changes,
        action_calls: ActionCalls,
    ) -> None:
        self._names = names
        self._variables = variables
        self._blocks = blocks
        self._changes = changes
        self._action_calls = action_calls

    def read(self, node: ast.AST) -> Sources:
        """Return the sources of an expression, or of another node without statements."""
        if not isinstance(node, ast.expr):  # such as the ``start=1`` of a call
            return self._read_parts(node)
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return self._names.read(name)
            case ast.Attribute():
                return self._read_attribute(node)
            case ast.Subscript():
                return self._read_subscript(node)
            case ast.Starred(value=value, ctx=ast.Load()):
                return self._read_unpacked(value)
            case ast.Dict(keys=keys, values=values):
                return self._read_dict(keys, values)
            case ast.Compare():
                return self._read_comparison(node)
            case ast.JoinedStr() | ast.BinOp(op=ast.Mod()):  # f"{value}" or "%s" % value
                return self._read_text(node)
            case ast.Call():
                return self._read_call(node)
            case ast.Lambda():
                return self._read_passed_lambda(node)
            case ast.NamedExpr(target=target, value=value):
                return self.assign([target], value)
            case ast.Yield() | ast.YieldFrom():
                return self.read_returned(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._read_comprehension(node)
            case ast.IfExp() | ast.BoolOp():
                return self._read_choice(node)
            case _:
                return self._read_parts(node)

    def _read_parts(self, node: ast.AST) -> Sources:
        # Not by read_all(), because each call counts for the depth of the recursion.
        return set[Source]().union(*map(self.read, ast.iter_child_nodes(node)))

    def read_all(self, nodes: Iterable[ast.AST]) -> Sources:
        """Read several expressions; return the sources of all of them."""
        return set[Source]().union(*map(self.read, nodes))

    def read_test(self, test: ast.expr) -> Sources:
        """Return the sources whose values decide a condition."""
        # ``if rows`` uses no field of the rows, so the source ``whole result`` is removed. In ``if
        # "Bob" in str(rows)``, which uses all fields, the source is an ``enclosed result``, which
        # is kept.
        return without_whole_results(self.read(test))

    # -- parts of objects, and values made of parts ----------------------------------------------

    def _read_attribute(self, node: ast.Attribute) -> Sources:
        """Return the sources of an attribute, which counts as a field of its object."""
        if node.attr in PASSED_CHANGING_METHODS:
            # The script passes the method on, and may call the method later with any arguments.
            self._changes.record_change(node.value, {UNKNOWN})
        self._names.record_attribute(node.attr)
        sources = self.read(node.value)
        if isinstance(node.value, ast.Name) and self._variables.is_module(node.value.id):
            return sources  # ``math.pi`` is no field
        return sources_of_field(sources, {Source("field", node.attr)})

    def _read_subscript(self, node: ast.Subscript) -> Sources:
        sources = sources_of_field(self.read(node.value), fields_read_by_key(node.slice))
        index_sources = self.read(node.slice)
        # Reading a missing key of a defaultdict inserts the key.
        self._changes.record_reading(node.value, decided_by=index_sources)
        return sources | index_sources

    def _read_unpacked(self, values: ast.expr) -> Sources:
        """Return the sources of the items in ``*values``, which reads an iterator to its end."""
        self._changes.record_reading(values)
        return self.read(values)

    def _read_dict(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr]) -> Sources:
        """Return the sources of a dict; a key of None stands for ``**``."""
        sources: set[Source] = set()
        for key, value in zip(keys, values, strict=True):
            if key is None:  # ``{**record}`` has the fields of the record
                sources |= self.read(value)
            else:
                # In ``{"id": record}``, the key ``id`` is no single field of the record, but gives
                # the whole record.
                sources |= self.read(key) | as_enclosed(self.read(value))
        return sources

    def _read_comparison(self, node: ast.Compare) -> Sources:
        sources = self._read_parts(node)
        match node:
            case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant()]):
                return without_results(sources)  # ``record is None`` reveals no field
            case _:
                for each in node.comparators:
                    # ``value in numbers`` reads the iterator ``numbers`` up to the value.
                    self._changes.record_reading(each, decided_by=sources)
                # ``record == other`` compares all fields, so the result depends on whole records.
                return as_enclosed(sources)

    def _read_text(self, node: ast.JoinedStr | ast.BinOp) -> Sources:
        """Return the actions and fields that flow into ``f"{value}"`` or ``text % value``."""
        sources = self._read_parts(node)
        if isinstance(node, ast.BinOp):
            # ``text % table`` may read any key of the table.
            self._changes.record_reading(node.right, decided_by=sources)
        return as_enclosed(sources)  # any part of the text may reveal any field

    def _read_choice(self, node: ast.IfExp | ast.BoolOp) -> Sources:
        """Return the sources of ``a if b else c``, ``a and b`` or ``a or b``."""
        match node:
            case ast.IfExp(test=test, body=body, orelse=orelse):
                tests, values = [test], [body, orelse]
            case ast.BoolOp(op=ast.And(), values=[*tests, last]):
                # The value is ``last``, or an empty or false test, which has no fields.
                values = [last]
            case _:  # each part of ``a or b`` may be the value
                tests, values = [], node.values
        with self._blocks.visiting(node):
            test_sources = set[Source]().union(*map(self.read_test, tests))
            sources = test_sources | self.read_all(values)
            # Whether ``b`` of ``a or b`` runs depends on ``a``, but on no field of ``a``.
            self._blocks.add_conditions(node, test_sources, without_results(sources))
            return sources

    # -- functions and comprehensions ------------------------------------------------------------

    def _read_passed_lambda(self, node: ast.Lambda) -> Sources:
        """Read a lambda that the script may store, and call at any time with any values."""
        self._names.record_passed_function(node)
        with self._blocks.visiting(node):
            return self._read_parts(node)

    def read_returned(self, node: ast.Return | ast.Yield | ast.YieldFrom) -> Sources:
        """Return the sources of a returned or yielded value.

        Also record the sources as those of the enclosing function's results.
        """
        sources = self._read_parts(node)
        function = self._blocks.innermost_function()
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            is_generator = not isinstance(node, ast.Return)
            if is_generator or self._changes.creates_iterator(node):  # ``return iter(rows)``
                self._variables.add_iterator(function.name)
        self._blocks.record_return(sources)
        return sources

    def bind_defaults(self, function: Function) -> None:
        """Read the defaults of a function's parameters."""
        default_sources = self._read_parts(function.args)
        # In ``def f(rows=all_rows)``, ``rows`` may refer to the object of ``all_rows``.
        self._variables.share_objects(
            parameter_names(function), default_sources, names_in(function.args)
        )

    def _read_comprehension(self, node: _Comprehension) -> Sources:
        """Bind the variables of a comprehension, and return the sources of its value."""
        with self._blocks.visiting(node):
            for clause in node.generators:
                self._read_clause(node, clause)
            if isinstance(node, ast.DictComp):
                item_sources = self._read_dict([node.key], [node.value])
            else:
                item_sources = self.read(node.elt)
            # The conditions decide how many items the value has.
            sources = self._blocks.conditions_of(node) | item_sources
            decided_by: Sources = frozenset()  # ``[n for n in numbers]`` reads all ``numbers``
            if isinstance(node, ast.GeneratorExp):
                # ``any(n == wanted for n in numbers)`` reads ``numbers`` up to a certain item.
                decided_by = sources
            for clause in node.generators:
                self._changes.record_reading(clause.iter, decided_by=decided_by)
            return sources

    def _read_clause(self, comprehension: _Comprehension, clause: ast.comprehension) -> None:
        """Bind the variables of one ``for`` in a comprehension, and read its tests."""
        # Conditions decide how many rows there are, and not the value of a row.
        self.bind_rows(clause.target, clause.iter, adds_conditions=False)
        # The number of rows decides how many items there are, not the fields of a row.
        self._blocks.add_conditions(comprehension, without_results(self.read(clause.iter)))
        self._blocks.add_conditions(comprehension, *map(self.read_test, clause.ifs))

    # -- assignments -----------------------------------------------------------------------------

    def assign(self, targets: Sequence[ast.expr], value: ast.expr) -> Sources:
        """Record that an assignment binds its targets to a value; return the value's sources."""
        sources = self.read(value)
        for target in targets:
            self._bind(target, sources, value)
        if len(targets) > 1:
            # The variables of ``a = b = []`` refer to one object, whose sources are added above.
            names = {name for target in targets for name in base_variables(target)}
            self._variables.share_objects(names, sources=frozenset(), variables=names)
        return sources

    def bind_rows(self, target: ast.expr, rows: ast.expr, *, adds_conditions: bool = True) -> None:
        """Bind the variables of a loop or comprehension.

        Args:
            target: The variable, or the tuple of variables.
            rows: The expression of the rows.
            adds_conditions: Whether the variables also get the sources of the conditions around the
                loop; False in comprehensions.
        """
        for variable, sources, item in self._bindings_to_rows(target, rows):
            self._bind(variable, sources, item, adds_conditions=adds_conditions)

    def _bindings_to_rows(self, target: ast.expr, rows: ast.expr) -> Iterator[_Binding]:
        """Yield what a loop over rows assigns to each variable.

        With ``enumerate`` and ``zip``, each variable gets only the sources of its own part of the
        row. With other rows, each variable of a tuple gets the sources of the whole row.
        """
        match target, rows:
            case ast.Tuple(elts=[number, item]), ast.Call(args=[values, *_]) if (
                self._names.is_plain_call(rows, "enumerate")
            ):
                # In ``for number, item in enumerate(values, start=1)``, no item decides the number.
                _, *start = argument_values(rows)
                yield _Binding(number, self.read_all(start), rows)
                yield _Binding(item, self.read(values), item_of(values))
            case ast.Tuple(elts=variables), ast.Call() if self._is_zip(rows, len(variables)):
                # zip() ends with the shortest list, so each variable depends on all lengths.
                length_sources = without_results(self.read(rows))
                for variable, values in zip(variables, rows.args, strict=True):
                    yield _Binding(variable, self.read(values) | length_sources, item_of(values))
            case _:
                yield _Binding(target, self.read(rows), item_of(rows))

    def _is_zip(self, call: ast.Call, list_count: int) -> bool:
        return len(call.args) == list_count and self._names.is_plain_call(call, "zip")

    def _bind(
        self, target: ast.AST, sources: Sources, value: ast.expr, *, adds_conditions: bool = True
    ) -> None:
        """Add the sources of a value to the variables that an assignment target binds.

        Args:
            target: The assignment target.
            sources: The actions and fields from which the value comes.
            value: The expression of the value.
            adds_conditions: Whether the variables also get the sources of the conditions around the
                assignment; False in comprehensions.
        """
        match target:
            case ast.Name(id=name):
                if adds_conditions:
                    self._variables.assign(name, sources)
                else:
                    self._variables.add_sources(name, sources)
                self._changes.record_assignment(name, value)
            case ast.Attribute(value=changed):
                self.read(changed)
                self._changes.record_change(changed, as_enclosed(sources), value)
            case ast.Subscript(value=changed, slice=index):
                self.read(changed)
                # The index decides which item is replaced.
                change_sources = as_enclosed(sources) | self.read(index)
                self._changes.record_change(changed, change_sources, value)
            case _:
                # Each variable of ``a, b = value`` gets an item of the value.
                for each in ast.iter_child_nodes(target):
                    self._bind(each, sources, item_of(value), adds_conditions=adds_conditions)

    # -- calls -----------------------------------------------------------------------------------

    def _read_call(self, call: ast.Call) -> Sources:
        """Record what a call passes on and changes; return the sources of its result."""
        parameters = self._names.parameters_of_action(call)
        if parameters is not None:
            return self._read_call_of_action(call, parameters)
        functions = self._names.functions_called(call)
        if functions:
            return self._read_call_of_defined(functions, call)
        return self._read_call_of_other(call)

    def _read_call_of_action(self, call: ast.Call, parameters: Sequence[str]) -> Sources:
        """Record the sources of an action call's arguments; return the sources of its result."""
        action = dotted(call.func)
        values = arguments_of_action(call, parameters).items()
        sources_by_parameter = {parameter: self.read(value) for parameter, value in values}
        self._action_calls.record(action, call, sources_by_parameter)
        result_sources = sources_of_action_result(action)
        for argument_sources in sources_by_parameter.values():
            # In ``save(record)["data"]``, the service may have put the record into ``data``.
            result_sources |= as_enclosed(argument_sources)
        return result_sources

    def _read_call_of_defined(self, functions: Sequence[Function], call: ast.Call) -> Sources:
        """Return the sources of what a function of the script returns.

        Args:
            functions: The functions of the called name; a script may define several.
            call: The call.
        """
        # In ``if paid: def f(): ...``, ``paid`` decides which function is called.
        choice_sources = self._variables.sources_of(dotted(call.func))
        argument_sources = self._read_all_but_lambdas(argument_values(call))
        lambda_sources = self._read_lambdas(call, choice_sources | argument_sources)
        # Passing a record uses no field. The fields that the function reads are added below.
        sources = without_results(choice_sources | argument_sources)
        sources |= fields_read_by_call(call, method="") | lambda_sources
        for function in functions:
            self._blocks.record_call(function)
            self._bind_parameters(function.args, call)
            sources |= self._blocks.sources_of_result(function)
        return sources

    def _bind_parameters(self, parameters: ast.arguments, call: ast.Call) -> None:
        """Bind the parameters of a called function to the arguments of the call."""
        positional = [*parameters.posonlyargs, *parameters.args]
        named = arguments_of(call, [parameter.arg for parameter in positional])
        # The name "*" stands for arguments that the call passes with * or **, to any parameter.
        unpacked = named.get("*")
        for parameter in (*positional, *parameters.kwonlyargs):
            value = named.get(parameter.arg, unpacked)
            if value is not None:
                self._bind_parameter(parameter, self.read(value), value)
        # ``*args`` and ``**kwargs`` of the function may contain any argument.
        any_argument = ast.Tuple(argument_values(call))
        for parameter in (parameters.vararg, parameters.kwarg):
            if parameter is not None:
                self._bind_parameter(parameter, as_enclosed(self.read(any_argument)), any_argument)

    def _bind_parameter(self, parameter: ast.arg, sources: Sources, value: ast.expr) -> None:
        # The conditions around the call already count for the whole body of the function.
        self._variables.add_sources(parameter.arg, sources)
        self._changes.record_assignment(parameter.arg, value)

    def _read_call_of_other(self, call: ast.Call) -> Sources:
        """Return the sources of what a method, builtin or unknown function returns."""
        receiver, method = receiver_and_method(call.func)
        receiver_sources = self.read(receiver)
        argument_sources = self._read_all_but_lambdas(argument_values(call))
        lambda_sources = self._read_lambdas(call, receiver_sources | argument_sources)
        used_fields = fields_read_by_call(call, method)
        used_sources = sources_of_field(receiver_sources, used_fields) | argument_sources
        known_name = method or self._names.name_of_builtin(call.func)
        result_sources = sources_of_function_result(known_name, used_sources, lambda_sources)
        self._changes.record_call(call, argument_sources | lambda_sources, result_sources)
        return result_sources

    def _read_all_but_lambdas(self, arguments: Iterable[ast.expr]) -> Sources:
        return self.read_all(each for each in arguments if not isinstance(each, ast.Lambda))

    def _read_lambdas(self, call: ast.Call, passed_sources: Sources) -> Sources:
        """Read the lambdas among a call's arguments; return the sources of their results.

        Args:
            call: The call.
            passed_sources: The sources of all values that the called function can pass to a lambda.
        """
        result_sources: set[Source] = set()
        for each in argument_values(call):
            if isinstance(each, ast.Lambda):
                self.bind_defaults(each)
                # In ``rows.sort(key=lambda row: …)``, ``row`` may be an object inside ``rows``.
                variables_in_call = self._variables.without_modules(names_in(call))
                self._variables.share_objects(
                    parameter_names(each), passed_sources, variables_in_call
                )
                # The passed values also decide how often the lambda runs, such as ``values`` in
                # ``map(lambda value: …, values)``.
                self._blocks.add_conditions(each, passed_sources)
                with self._blocks.visiting(each):
                    result_sources |= self._read_parts(each)
        return result_sources
