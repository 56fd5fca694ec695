"""Python's own functions, methods and modules, as the analysis of scripts knows them."""

from __future__ import annotations

import ast
from typing import Final

from delf_engine.origins.sources import (
    UNKNOWN_FIELD,
    Source,
    Sources,
    as_enclosed,
    without_results,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Builtins that return no untrusted data and change no argument. Some of them advance an iterator:
# see Changes.record_reading().
HARMLESS_BUILTINS: Final = _words(
    "abs all any bool chr dict enumerate filter float format int isinstance iter len list map max "
    "min next ord print range repr reversed round set sorted str sum tuple type zip"
)
# Modules whose functions return no untrusted data and do not modify their arguments.
HARMLESS_MODULES: Final = _words(
    "asyncio base64 collections copy dataclasses datetime decimal enum fractions functools hashlib "
    "html itertools json math re statistics string textwrap typing urllib.parse uuid "
    "zoneinfo"
)
# Functions with which a script can change variables without an assignment.
REFLECTION_NAMES: Final = frozenset(
    {"globals", "locals", "vars", "setattr", "exec", "eval", "__builtins__", "__import__"}
)
# Modules with which a script can change variables without an assignment, or replace a builtin.
REFLECTION_MODULES: Final = frozenset({"__main__", "builtins", "importlib", "inspect", "sys"})
# Names of the module ``decimal`` with which a script can change how the module computes.
CONTEXTS_OF_DECIMAL: Final = _words(
    "BasicContext DefaultContext ExtendedContext getcontext localcontext setcontext"
)
# Methods that change neither their object nor their arguments.
READING_METHODS: Final = _words(
    "casefold count date endswith format get index isoformat items join keys lower replace split "
    "splitlines startswith strftime strip title upper values"
)
# Methods that change their list, dict or set, but not their arguments.
CHANGING_METHODS: Final = _words(
    "add append clear discard extend insert pop popitem remove reverse setdefault sort update"
)
# Methods that change their object if a script passes the method on to a function, as in
# ``map(queue.appendleft, rows)``. Queues, generators and the like have such methods, too.
PASSED_CHANGING_METHODS: Final = CHANGING_METHODS | _words(
    "appendleft asend athrow difference_update extendleft intersection_update move_to_end put "
    "put_nowait rotate send set_exception set_result subtract symmetric_difference_update throw"
)
# Methods whose argument becomes an item of a list or set, which has no fields of its own.
_METHODS_THAT_ADD_ITEMS: Final = _words("add append extend insert")
# Functions that create a new object, to which no variable refers yet.
CONSTRUCTORS: Final = _words("list dict set sorted tuple defaultdict Counter deque OrderedDict")
# Functions whose result is an argument or has the items of an argument, so that a field of the
# result is a field of a record. Any other function may put a whole record under another name.
_SELECTING_FUNCTIONS: Final = _words(
    "as_completed chain copy create_task cycle deepcopy deque ensure_future enumerate filter "
    "from_iterable gather groupby islice iter list loads map max min next pop popleft reversed "
    "run set shield sorted tuple wait_for zip"
)
# Functions that the analysis knows by name, unless the script gives the name to another function.
KNOWN_FUNCTIONS: Final = HARMLESS_BUILTINS | CONSTRUCTORS | _SELECTING_FUNCTIONS
# Functions that return an iterator or a defaultdict. Both change when a script reads them.
ITERATOR_FUNCTIONS: Final = _words(
    "DefaultDict as_completed defaultdict enumerate filter finditer iter iterencode map reversed "
    "zip"
)
# Functions of ``itertools`` whose items are iterators.
ITERATORS_OF_ITERATORS: Final = _words("groupby tee")
# Functions that read the items of an iterator and whose result is no iterator.
CONSUMING_FUNCTIONS: Final = _words(
    "all any dict float frozenset int join len list max min next set sorted str sum tuple"
)


def sources_of_function_result(function: str, sources: Sources, lambda_sources: Sources) -> Sources:
    """Return the sources of the result of a function or method that the script does not define.

    Args:
        function: The name of the function or method; empty for a function of unknown effect.
        sources: The sources of the arguments, and of what a method reads of its object.
        lambda_sources: The sources of the results of lambdas among the arguments.
    """
    if function == "map" and lambda_sources:
        # ``map(lambda row: row["id"], rows)`` uses only the field ``id`` of the rows.
        return without_results(sources) | lambda_sources
    if function == "len":  # a length reveals no field
        return without_results(sources | lambda_sources)
    if function in _SELECTING_FUNCTIONS:  # ``max(rows)`` is a record of ``rows``
        return sources | lambda_sources
    # Any other function may put a whole record into a field of its result.
    return as_enclosed(sources | lambda_sources)


def sources_added_by_method(method: str, argument_sources: Sources) -> Sources:
    """Return the sources that ``rows`` gets from the argument of ``rows.append(record)``."""
    # After ``rows.append(record)``, ``rows[0]["id"]`` is the field ``id`` of the record.
    if method in _METHODS_THAT_ADD_ITEMS:
        return argument_sources
    # After ``d.update(id=record)``, ``d["id"]`` is the whole record, and not its field ``id``.
    return as_enclosed(argument_sources)


def fields_read_by_call(call: ast.Call, method: str) -> Sources:
    """Return the fields that a function or method reads from a record: at most one field.

    Args:
        call: The call of the function or method.
        method: The name of the method; empty for a function.
    """
    unknown_field = {Source("field", UNKNOWN_FIELD)}
    # ``f(**record)`` passes each field of the record.
    if any(keyword.arg is None for keyword in call.keywords):
        return unknown_field
    match method:
        case "get" | "pop" | "setdefault" if call.args:
            return fields_read_by_key(call.args[0])
        case "items" | "popitem" | "values":
            return unknown_field
        case _:
            return frozenset()


def fields_read_by_key(key: ast.expr) -> Sources:
    """Return the field that a subscript's key names, as in ``record["email"]``.

    Return no field for an index of a list, and an unknown field for a computed key.
    """
    match key:
        case ast.Slice() | ast.UnaryOp() | ast.Constant(value=int()):
            return frozenset()  # indexes of lists, such as ``[0]``, ``[-1]`` and ``[1:]``
        case ast.Constant(value=str(name)):
            return {Source("field", name)}
        case _:
            return {Source("field", UNKNOWN_FIELD)}
