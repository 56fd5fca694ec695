"""Detection of actions that a script names without calling, such as ``partial(mail.send, 1)``."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Iterator, Mapping

from delf.protocols.sandbox import check_script

_MAY_NOT_RUN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler, ast.match_case)


def never_called(code: str, names: Collection[str], called: Collection[str]) -> Mapping[str, int]:
    """Return the actions that a script names as values but never calls.

    If one action of a dict or list of actions was called, all of them count as called. Code that
    may not have run is ignored.

    Args:
        code: The script; an invalid script names nothing.
        names: The names of actions and tools, such as ``mail.send``.
        called: The actions that were called while the script ran.

    Returns:
        The line of the first occurrence of each action.
    """
    missing = {*names} - {*called}
    is_named = any(name in code for name in missing) or "getattr" in code
    if not is_named or check_script(code) is not None:
        return {}
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
        own = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        found: dict[str, int] = {}
        for statement in _statements(tree.body):
            named = {name: line for name, line in _mentions(statement, names) if name not in own}
            if not named.keys() & {*called}:
                for name, line in named.items():
                    found.setdefault(name, line)
        return found
    except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):
        return {}


def _statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the statements that certainly run, with the parts of compound statements."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case ast.If(test=test) | ast.While(test=test):
                yield test
            case ast.For(iter=given, body=inner) | ast.AsyncFor(iter=given, body=inner):
                yield given
                yield from _statements(inner)
            case ast.With(body=inner) | ast.AsyncWith(body=inner) | ast.Try(body=inner):
                yield from _statements(inner)
            case _:
                yield node


def _mentions(
    node: ast.AST, names: Collection[str], *, later: bool = False
) -> Iterator[tuple[str, int]]:
    """Yield actions that an expression names without calling, with their lines."""
    match node:
        case ast.Call() | ast.Attribute() | ast.Name() if (label := _label(node)) in names:
            yield label, node.lineno
            return
        case ast.Call(func=function):
            label = _label(function)
            if label in names:
                if later:  # in a lambda or function that may never be called
                    yield label, node.lineno
            else:
                yield from _mentions(function, names, later=later)
            for given in (*node.args, *node.keywords):
                yield from _mentions(given, names, later=later)
            return
        case ast.Lambda(body=body):
            yield from _mentions(body, names, later=True)
            return
        case ast.IfExp(test=test):
            yield from _mentions(test, names, later=later)
            return
        case _ if isinstance(node, _MAY_NOT_RUN):
            return
        case _:
            pass
    for child in ast.iter_child_nodes(node):
        yield from _mentions(child, names, later=later)


def _label(node: ast.AST) -> str:
    match node:
        case ast.Name(id=word, ctx=ast.Load()):
            return word
        case ast.Attribute(value=ast.Name(id=word), attr=method, ctx=ast.Load()):
            return f"{word}.{method}"
        case ast.Call(
            func=ast.Name(id="getattr"), args=[ast.Name(id=word), ast.Constant(value=str(method))]
        ):
            return f"{word}.{method}"
        case _:
            return ""
