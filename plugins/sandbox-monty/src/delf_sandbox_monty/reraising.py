"""Line numbers of exceptions that leave a ``try`` statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from delf.bindings import name_bound_by
from delf_sandbox.guest.nodes import name, position_of

_BASE: Final = "BaseException"


def keep_lines_of_reraised(tree: ast.Module) -> None:
    """Rewrite a script in place so that an exception keeps its line when it leaves a ``try``.

    Monty reports the line of the last expression in the handler or ``finally`` that the exception
    has left. So add a last expression with the line of the ``try`` body. If the body has several
    lines, use the line of the ``try``, because the line of the exception is unknown.
    """
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Try):
            # The end of a handler deletes its name, so an inner handler needs another name.
            _keep_line(node, f"__delf_error_{number}__")


def _keep_line(node: ast.Try, error_name: str) -> None:
    """Rewrite a ``try`` statement so that an exception that leaves it keeps its line.

    Args:
        node: The statement.
        error_name: A name that the script does not use, for exceptions without a name.
    """
    first, last = node.body[0], node.body[-1]
    # Compare lines: the rewriting may have added statements, which have the line of the original.
    is_one_statement = first.lineno == last.lineno
    # An exception that leaves ``finally`` may come from a handler instead of the body.
    may_raise_in_handler = bool(node.handlers and node.finalbody)
    origin = first if is_one_statement and not may_raise_in_handler else node
    for handler in node.handlers:
        _name_reraised(handler, origin, error_name)
    if node.handlers and not any(_catches_all(handler) for handler in node.handlers):
        # Reraise any other exception: ``except BaseException as name: raise name``.
        reraise = ast.Raise(exc=name(origin, error_name), cause=None, **position_of(origin))
        handler = ast.ExceptHandler(
            type=name(origin, _BASE), name=error_name, body=[reraise], **position_of(origin)
        )
        node.handlers.append(handler)
    if node.finalbody:
        node.finalbody.append(_line_mark(origin))


def _line_mark(origin: ast.stmt) -> ast.Expr:
    """Build an expression without effect, for the end of a ``finally`` or of a named handler.

    For an exception that leaves such a block, Monty reports the line of this expression.
    """
    nothing = ast.Constant(value=None, **position_of(origin))
    return ast.Expr(value=nothing, **position_of(origin))


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (isinstance(handler.type, ast.Name) and handler.type.id == _BASE)


def _name_reraised(handler: ast.ExceptHandler, origin: ast.stmt, error_name: str) -> None:
    """Replace each bare ``raise`` in a handler by a ``raise`` of the caught exception.

    Change nothing if the handler gives the exception's name another value, or deletes the name.

    Args:
        handler: The handler.
        origin: The statement whose line number the new ``raise`` statements get.
        error_name: The name of the exception if the handler has none.
    """
    reraises = [
        node
        for node in _nodes_of_handler(handler.body)
        if isinstance(node, ast.Raise) and node.exc is None
    ]
    if not reraises or (handler.name and _is_rebound(handler.name, handler.body)):
        return
    if handler.type is None:
        handler.type = name(handler, _BASE)
    handler.name = handler.name or error_name
    for reraise in reraises:
        reraise.exc = name(origin, handler.name)
        reraise.lineno = origin.lineno
    handler.body.append(_line_mark(origin))


def _is_rebound(word: str, statements: Sequence[ast.stmt]) -> bool:
    """Return True if statements, or functions in them, bind or delete a name."""
    for statement in statements:
        for node in ast.walk(statement):
            if name_bound_by(node) == word:
                return True
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del) and node.id == word:
                return True
    return False


def _nodes_of_handler(statements: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a handler in which a bare ``raise`` raises the handler's exception.

    Leave out the bodies of functions, and the handlers of inner ``try`` statements.
    """
    for node in statements:
        yield node
        if isinstance(node, ast.Try):
            yield from _nodes_of_handler([*node.body, *node.orelse, *node.finalbody])
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _nodes_of_handler(list(ast.iter_child_nodes(node)))
