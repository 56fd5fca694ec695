"""Looks at a script before Monty runs it: what it forgot, and what Monty would take otherwise."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from delf.protocols.sandbox import Failed
from delf_sandbox.guest.script import bound_names, forgotten_function

_NO_AWAIT = ("add_to_output_files", "rerun")
"""Names that scripts may await or not; Monty's are plain functions."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A script as Monty gets it.

    Args:
        code: Its text; every line is where the model wrote it.
        source: What the model wrote.
    """

    code: str
    source: str


def prepare(source: str, tools: Mapping[str, Sequence[str]]) -> Prepared | Failed:
    """The script for Monty, or why it cannot be run at all.

    Args:
        source: What the model wrote.
        tools: The methods of each connection by its name; none for a plain tool.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as error:
        message = f"{error.msg} (line {error.lineno})"
        kind = type(error).__name__
        place = line_of(source, error.lineno)
        return Failed(kind=kind, message=message, line=error.lineno, source=place)
    except (ValueError, RecursionError, MemoryError) as error:
        return Failed(kind="SyntaxError", message=f"the script cannot be read: {error}")
    last = tree.body[-1] if tree.body else None
    missed = [
        (label, node.lineno) for label, node in _never_awaited(tree, tools) if node is not last
    ]
    if missed:
        calls = ", ".join(f"{label} on line {line}" for label, line in missed[:5])
        return Failed(
            kind="NotAwaitedError",
            message=f"never awaited, so never made: {calls}; write `await …`",
            line=missed[0][1],
            source=line_of(source, missed[0][1]),
        )
    awaited = [node for _, node in _never_awaited(tree, tools) if node is last]
    code = _rewritten(source, tree, awaited)
    main = forgotten_function(tree)
    if main is not None:
        is_async = isinstance(main, ast.AsyncFunctionDef)
        code += f"\nawait {main.name}()" if is_async else f"\n{main.name}()"
    return Prepared(code, source)


def line_of(source: str, number: int | None) -> str | None:
    """A line's text.

    Args:
        source: The script.
        number: From 1.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    text = lines[number - 1].strip() if number and 0 < number <= len(lines) else ""
    return text[:400] or None


def _never_awaited(
    tree: ast.AST, tools: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, ast.Expr]]:
    """Calls of tools that stand alone as a statement, without ``await``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            match node.value.func:
                case ast.Name(id=name) if name in tools and not tools[name]:
                    yield f"{name}(…)", node
                case ast.Attribute(value=ast.Name(id=name), attr=method) if tools.get(name):
                    yield f"{name}.{method}(…)", node
                case ast.Attribute(value=ast.Name(id="asyncio"), attr="gather"):
                    yield "asyncio.gather(…)", node
                case _:
                    pass


def _rewritten(source: str, tree: ast.Module, awaited: Sequence[ast.Expr]) -> str:
    """The text with small changes for what Monty has in another way; lines stay as they are."""
    # A call as the script's value is awaited, as the other sandboxes do.
    forgotten = [(node.lineno, node.col_offset, b"", b"await ") for node in awaited]
    edits = sorted([*_edits(tree), *forgotten], reverse=True)
    if not edits:
        return source
    lines = source.encode().replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    for line, column, old, new in edits:
        text = lines[line - 1]
        if text[column : column + len(old)] == old:
            lines[line - 1] = text[:column] + new + text[column + len(old) :]
    return b"\n".join(lines).decode()


def _edits(tree: ast.Module) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Changes as line, column, what stands there and what is to stand there."""
    yield from _outliving_main(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Await(value=ast.Call(func=ast.Name(id=name))) if name in _NO_AWAIT:
                yield node.lineno, node.col_offset, b"await ", b""
            case ast.Call(func=ast.Name(id="next") as func, args=[ast.GeneratorExp() as arg, *_]):
                # Monty's generator expressions are lists, which next() refuses.
                alone = (arg.lineno, arg.col_offset) == (func.end_lineno, func.end_col_offset)
                yield arg.lineno, arg.col_offset, b"", b"(iter" if alone else b"iter("
                yield arg.end_lineno or arg.lineno, arg.end_col_offset or 0, b"", b")"
            case _:
                pass


def _outliving_main(tree: ast.Module) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Have the variables of ``main()`` outlive it: to the model they are the script's."""
    for main in tree.body:
        if not isinstance(main, (ast.FunctionDef, ast.AsyncFunctionDef)) or main.name != "main":
            continue
        first = main.body[0]
        is_simple = not hasattr(first, "body") and not isinstance(first, ast.Match)
        is_shared = any(isinstance(node, (ast.Nonlocal, ast.Global)) for node in ast.walk(main))
        names = sorted(bound_names(main)) if is_simple and not is_shared else []
        if names and not main.args.args and not main.args.kwonlyargs:
            declared = f"global {', '.join(names)}; "
            yield first.lineno, first.col_offset, b"", declared.encode()
