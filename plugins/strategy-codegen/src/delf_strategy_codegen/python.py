"""Analysis of Python as models write it: validity, used names and defined names."""

from __future__ import annotations

import ast
import functools
import html
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from typing import Final

from delf.bindings import name_bound_by
from delf.protocols.sandbox import MAX_SCRIPT

_CALL_NODES: Final = (ast.Call, ast.Await)
_EFFECT_NODES: Final = (
    *_CALL_NODES,
    ast.Assign,
    ast.AugAssign,
    ast.Import,
    ast.ImportFrom,
    ast.Return,
)
_RUN_TOOL_NAMES: Final = frozenset(
    {"run", "python", "execute", "execute_python", "exec", "code_interpreter", "python_interpreter"}
)
_FIRST_CONSOLE_PROMPT: Final = re.compile(r"\s*>>>(?: |$)")
_CONSOLE_PROMPT: Final = re.compile(r"[ \t]*(?:>>>|\.\.\.)(?: |$)")
_ONLY_TAGS: Final = re.compile(r"\s*(?:</?[\w|:-]+>\s*|<\|\w+\|>\s*)+")
_MAX_LINES: Final = 400


def parse_script(code: str) -> ast.Module | None:
    """Return a script's syntax tree; None for invalid Python."""
    tree = tree_or_syntax_error(code)
    return tree if isinstance(tree, ast.Module) else None


@functools.lru_cache(maxsize=8)  # each answer of the model is parsed several times
def tree_or_syntax_error(code: str) -> ast.Module | SyntaxError | None:
    """Return the syntax tree of a script, or its syntax error.

    Returns:
        None if the code is too long, or if Python fails to parse the code with another error than a
        syntax error, for example because of null bytes or too deep nesting.
    """
    if len(code) > MAX_SCRIPT:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _parse(code)
        except SyntaxError as error:
            # A traceback in the cache would keep the callers' frames, and so their tasks and users.
            error.__context__ = None  # the SystemError in _parse(), which has a traceback, too
            return error.with_traceback(None)
        except (ValueError, RecursionError, MemoryError):
            return None


def _parse(code: str) -> ast.Module:
    try:
        return ast.parse(code)
    except SystemError:
        # Try again: Python 3.11 may fail if the garbage collector runs a finalizer that itself
        # parses code, for example to write a traceback.
        return ast.parse(code)


def is_script(code: str) -> bool:
    """Return whether a text is Python with a call, assignment, import or return.

    Prose may also parse as Python, but has none of these.
    """
    return _has_node(code, _EFFECT_NODES)


def has_call(code: str) -> bool:
    """Return whether a text is Python with a call or ``await``."""
    return _has_node(code, _CALL_NODES)


def _has_node(code: str, kinds: tuple[type[ast.AST], ...]) -> bool:
    tree = parse_script(code)
    return tree is not None and any(isinstance(node, kinds) for node in ast.walk(tree))


def stops_in_string(code: str) -> bool:
    """Return whether code ends within a triple-quoted string."""
    problem = tree_or_syntax_error(textwrap.dedent(code))
    return isinstance(problem, SyntaxError) and "unterminated triple-quoted" in problem.msg


def repair_script(code: str, indent: int = 0) -> str | None:
    """Repair code if that makes it valid Python.

    The repair removes common indentation, console prompts, stray fences and tags, and unescapes
    HTML entities. Code that stays invalid is returned without these changes. In any case, empty
    lines around the code are removed, and ``run(code="…")`` is replaced by the script in this call.

    Args:
        code: The code in the answer.
        indent: The number of columns by which the enclosing fence is indented.

    Returns:
        None for blank code.
    """
    code = code.strip("\n")
    if not code.strip():
        return None
    repaired = code
    for candidate in _candidates(code, indent):
        if parse_script(candidate) is not None:
            repaired = candidate
            break
    return _without_run_call(repaired.strip("\n"))


def _candidates(code: str, indent: int) -> Iterator[str]:
    """Yield the code, then the result of each possible repair.

    Args:
        code: The code in the answer.
        indent: The number of columns by which the enclosing fence is indented.
    """
    yield code
    dedented = textwrap.dedent(code)
    yield dedented
    if indent:
        yield re.sub(rf"^[ \t]{{1,{indent}}}", "", code, flags=re.MULTILINE)
    lines = dedented.split("\n")
    # In a session of Python's console, only lines after a prompt (``>>>`` or ``...``) are code.
    if _FIRST_CONSOLE_PROMPT.match(lines[0]):
        typed = [line for line in lines if _CONSOLE_PROMPT.match(line)]
        yield "\n".join(_CONSOLE_PROMPT.sub("", line, count=1) for line in typed)
    # The code may end at a closing fence, in a line of its own or after the last statement.
    for number, line in enumerate(lines[:_MAX_LINES]):
        if line.rstrip().endswith("```"):
            last_line = line.rstrip().removesuffix("```")
            yield "\n".join([*lines[:number], last_line])
            break
    # Tags such as ``</code>`` may follow the code.
    while len(lines) > 1 and _ONLY_TAGS.fullmatch(lines[-1]):
        lines.pop()
        yield "\n".join(lines).rstrip("\n")
    if "&lt;" in code or "&gt;" in code or "&quot;" in code:
        yield html.unescape(dedented)


def _without_run_call(code: str) -> str:
    """Return the script in ``run(code="…")``, or the joined scripts of a list of such calls.

    Any other code is returned unchanged.
    """
    tree = parse_script(code)
    if tree is None or len(tree.body) != 1:
        return code
    expression = getattr(tree.body[0], "value", None)
    parts = expression.elts if isinstance(expression, ast.List) else [expression]
    scripts: list[str] = []
    for part in parts:
        script = _script_in_run_call(part)
        if script is None:
            return code
        scripts.append(script)
    if not scripts:  # the list is empty
        return code
    return "\n\n".join(scripts)


def _script_in_run_call(node: ast.AST | None) -> str | None:
    """Return the script in a call such as ``run("…")`` or ``await python(code="…")``.

    Return None for any other node.
    """
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
    if node.func.id not in _RUN_TOOL_NAMES or len(arguments) != 1:
        return None
    argument = arguments[0]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    return None


# -- what a piece needs and makes ------------------------------------------------------------


def bound_names(code: str) -> set[str]:
    """Return the names that a script binds."""
    tree = parse_script(code)
    return set() if tree is None else _stored(tree.body)


def free_names(code: str) -> set[str]:
    """Return the names that a script uses before it binds them."""
    tree = parse_script(code)
    if tree is None:
        return set()
    stored_names: set[str] = set()
    free: set[str] = set()
    for node in tree.body:
        loaded_names = _loaded([node])
        # ``total += 1`` also uses ``total``.
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            loaded_names.add(node.target.id)
        free |= loaded_names - stored_names - _bound_before_use(node)
        stored_names |= _stored([node])
    return free


def _bound_before_use(statement: ast.stmt) -> set[str]:
    """Return the names that a statement may bind before it uses these names."""
    value = getattr(statement, "value", None)
    if isinstance(value, ast.expr):
        # ``x = [n + x for n in numbers]`` binds ``n`` before its use. ``x`` is bound only after the
        # value was computed, so ``x`` is used before.
        return _stored([value])
    return _stored([statement])  # the order in a loop, for example, is unknown


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that nodes read."""
    names: set[str] = set()
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                names.add(part.id)
    return names


def _stored(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that nodes bind, for example by assignments, definitions and imports."""
    parts = (part for node in nodes for part in ast.walk(node))
    return {name for part in parts if (name := name_bound_by(part))}
