"""Names, arguments and fields in the syntax trees of scripts and outlines."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from delf_engine.tolerance import with_spelling_of_parameters

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def dotted(node: ast.AST) -> str:
    """Return a dotted name such as ``mail.send``; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name) if inner := dotted(value):
            return f"{inner}.{name}"
        case _:
            return ""


def root_of(dotted_name: str) -> str:
    """Return the first part of a dotted name: ``mail`` of ``mail.send``."""
    return dotted_name.partition(".")[0]


def last_name(function: ast.expr) -> str:
    """Return the name of a called function or method, without its module or object."""
    return function.attr if isinstance(function, ast.Attribute) else dotted(function)


def receiver_and_method(function: ast.expr) -> tuple[ast.expr, str]:
    """Split a called expression: ``rows.append`` into ``rows`` and the name ``append``.

    For a function such as ``len``, return the function itself and an empty name.
    """
    if isinstance(function, ast.Attribute):
        return function.value, function.attr
    return function, ""


def names_in(node: ast.AST) -> Iterator[str]:
    """Yield each variable name in a node, as often as the name occurs there."""
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def base_variables(node: ast.AST) -> Iterator[str]:
    """Yield the variables of which an expression reads a part.

    For ``a.b["c"]``, yield ``a``; for ``a.get(key, b)``, yield ``a`` and ``b``. For an expression
    of another form, yield all names in the expression.
    """
    match node:
        case ast.Subscript(value=value) | ast.Attribute(value=value):
            yield from base_variables(value)
        # ``a.get(key, default)`` returns a part of ``a``, or the default.
        case ast.Call(
            func=ast.Attribute(value=value, attr="get" | "setdefault"), args=[_key, *defaults]
        ):
            for part in (value, *defaults):
                yield from base_variables(part)
        case _:
            yield from names_in(node)


def item_of(values: ast.expr) -> ast.expr:
    """Return the expression ``*rows``, which stands for one item of ``rows``.

    So ``for row in rows`` can be read like an assignment ``row = *rows``.
    """
    return ast.Starred(values)


def imported_modules(node: ast.Import | ast.ImportFrom) -> AbstractSet[str]:
    """Return the modules of ``import a, b``, or the module of ``from a import b``."""
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module}
    return {each.name for each in node.names}


def parameter_names(function: Function) -> Iterator[str]:
    """Yield the names of a function's parameters, ``*args`` and ``**kwargs`` included."""
    return (each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg))


def argument_values(call: ast.Call) -> list[ast.expr]:
    """Return the values of the positional and keyword arguments of a call."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def arguments_of(call: ast.Call, parameters: Sequence[str]) -> Mapping[str, ast.expr]:
    """Return the arguments of a call of a Python function, by parameter name.

    The key ``*`` has the arguments for unknown parameters, as in ``f(*rows)`` or ``f(**record)``.

    Args:
        call: The call.
        parameters: The names of the function's positional parameters, in order.
    """
    named: dict[str, ast.expr] = {}
    unpacked: list[ast.expr] = []
    for keyword in call.keywords:
        if keyword.arg:
            named[keyword.arg] = keyword.value
        else:
            unpacked.append(keyword.value)
    has_star = any(isinstance(each, ast.Starred) for each in call.args)
    if has_star:  # the position of an argument does not show its parameter
        unpacked += call.args
    else:
        named |= dict(zip(parameters, call.args, strict=False))
    if unpacked:
        named["*"] = ast.Tuple(elts=unpacked)
    return named


def arguments_of_action(call: ast.Call, parameters: Sequence[str]) -> Mapping[str, ast.expr]:
    """Return the arguments of a call of an action, as :func:`arguments_of` does.

    A keyword of such a call may be spelled differently than its parameter, as ``userId`` for
    ``user_id``.

    Args:
        call: The call.
        parameters: The names of the action's parameters, in order.
    """
    return with_spelling_of_parameters(arguments_of(call, parameters), parameters)


def is_constant(node: ast.expr) -> bool:
    """Return whether an expression is a literal value that contains no ``...``."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    constants = (each for each in ast.walk(node) if isinstance(each, ast.Constant))
    return all(constant.value is not ... for constant in constants)


class FieldOfCall(NamedTuple):
    """A field of a call's result, such as ``find()[0].address``."""

    call: ast.Call
    path: Sequence[str]
    """The names of the fields, in the order in which they are read."""


def field_of(node: ast.expr) -> FieldOfCall | None:
    """Parse an expression that reads a field of a call's result, such as ``find()[0].address``.

    Returns:
        The field: its path is ``["a", "b"]`` for ``find().a[0].b``. None for all other expressions,
        such as ``max(find()).a``.
    """
    match node:
        # ``list(find().a)`` has the same values as ``find().a``.
        case ast.Call(func=ast.Name(id="list" | "set" | "sorted" | "tuple"), args=[values]):
            return field_of(values)
        case ast.Call(args=args):
            # If a positional argument contains a call, as in ``max(find())``, the outer call calls
            # a Python function, and no action.
            is_python_function = any(_contains_call(each) for each in args)
            return None if is_python_function else FieldOfCall(node, [])
        case (
            ast.Attribute(value=record, attr=name)
            | ast.Subscript(value=record, slice=ast.Constant(value=str(name)))
        ):
            outer = field_of(record)
            return None if outer is None else FieldOfCall(outer.call, [*outer.path, name])
        case ast.Subscript(value=items):  # a number selects an item of a list
            return field_of(items)
        case _:
            return None


def _contains_call(node: ast.AST) -> bool:
    return any(True for _ in calls_in(node))


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    """Yield all calls in an expression, which may be a call itself."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))
