"""Detection of actions that a script names without calling, such as ``partial(mail.send, 1)``."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping

from delf.protocols.sandbox import check_script

_MAY_NOT_RUN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler, ast.match_case)


def never_called(
    code: str, names: Collection[str], called_names: Collection[str]
) -> Mapping[str, int]:
    """Find actions that a script mentions without a call, such as ``mail.send`` without ``()``.

    Args:
        code: The script; an invalid script mentions no actions.
        names: The names of actions and tools, such as ``mail.send``.
        called_names: The actions that were called while the script ran.

    Returns:
        The line of the first mention, by action.
    """
    uncalled_names = {*names} - {*called_names}
    # A quick test, as most scripts call all actions that they mention. ``getattr(mail, "send")``
    # mentions an action without its dotted name.
    may_mention_uncalled = "getattr" in code or any(name in code for name in uncalled_names)
    if not may_mention_uncalled or check_script(code) is not None:
        return {}
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
        # In ``def run(lookup): ...``, ``lookup`` is no action.
        parameter_names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        action_names = {*names} - parameter_names
        first_lines: dict[str, int] = {}
        # The code in an ``if``, for example, may not have run.
        for statement in _unconditional_statements(tree.body):
            mentions = list(_mentions(statement, action_names))
            # A script may choose from ``[mail.send, mail.draft]``, and call only one.
            has_called_action = any(name in called_names for name, _ in mentions)
            if not has_called_action:
                for name, line in mentions:
                    first_lines.setdefault(name, line)
        return first_lines
    except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):
        return {}


def _unconditional_statements(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the statements outside of branches, and the conditions of branches.

    The bodies of ``for`` loops count as unconditional, although a loop may run zero times. The
    bodies of ``while`` loops and of functions are skipped.
    """
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case ast.If(test=test) | ast.While(test=test):
                yield test
            case ast.For(iter=iterable, body=inner) | ast.AsyncFor(iter=iterable, body=inner):
                yield iterable
                yield from _unconditional_statements(inner)
            case ast.With(body=inner) | ast.AsyncWith(body=inner) | ast.Try(body=inner):
                yield from _unconditional_statements(inner)
            case _:
                yield node


def _mentions(
    node: ast.AST, names: Collection[str], *, in_lambda: bool = False
) -> Iterator[tuple[str, int]]:
    """Yield the actions that an expression mentions without calling them, each with its line.

    In a lambda, which may never be called, even ``mail.send()`` is only a mention. Parts that may
    not be evaluated are skipped, such as the branches of ``a if b else c``.

    Args:
        node: The expression.
        names: The names of the actions.
        in_lambda: Whether the expression is in a lambda.
    """
    if isinstance(node, ast.expr) and (name := _action_name(node)) in names:
        yield name, node.lineno
        return
    parts: Iterable[ast.AST]
    match node:
        case ast.Call(func=function) if _action_name(function) in names and not in_lambda:
            parts = [*node.args, *node.keywords]
        case ast.Lambda(body=body):
            parts, in_lambda = [body], True
        case ast.IfExp(test=test):
            parts = [test]
        case _ if isinstance(node, _MAY_NOT_RUN):
            parts = []
        case _:
            parts = ast.iter_child_nodes(node)
    for part in parts:
        yield from _mentions(part, names, in_lambda=in_lambda)


def _action_name(node: ast.AST) -> str:
    """Return the dotted name in an expression, such as ``mail.send``; else an empty text."""
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
