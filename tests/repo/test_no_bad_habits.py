"""Habits that hide failures or leave work behind."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.workspace import CORE, ROOT, modules, nodes_of, place


def _swallows(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        idle = all(
            isinstance(part, ast.Pass | ast.Continue)
            or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            for part in node.body
        )
        return idle and _catches_all(node.type)
    if isinstance(node, ast.Call) and _name_of(node.func) == "suppress":
        return any(_catches_all(argument) for argument in node.args)
    return False


def _name_of(function: ast.expr) -> str | None:
    return getattr(function, "id", getattr(function, "attr", None))


def _catches_all(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_catches_all(part) for part in kind.elts)
    return kind is None or ast.unparse(kind) in {"Exception", "BaseException"}


def _prints(node: ast.AST) -> bool:
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Name) and function.id == "print"


def _waits_for(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "asyncio.wait_for"


def _normalizes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "unicodedata.normalize"


def _asks_for_home(node: ast.AST) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any("platformdirs" in name for name in _imported(node))
    return isinstance(node, ast.Call) and (
        _name_of(node.func) == "expanduser" or ast.unparse(node.func) == "Path.home"
    )


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    module = node.module if isinstance(node, ast.ImportFrom) else None
    return [module or "", *(alias.name for alias in node.names)]


def _parses_deep_json_unguarded(node: ast.AST) -> bool:
    """True for a handler or ``suppress`` of JSON that is invalid, but not of JSON nested deeply."""
    if isinstance(node, ast.Try):
        kinds = [kind for handler in node.handlers if (kind := handler.type) is not None]
    elif isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items]
        kinds = [kind for call in calls if isinstance(call, ast.Call) for kind in call.args]
    else:
        return False
    parts = [part for statement in node.body for part in ast.walk(statement)]
    if not any(isinstance(part, ast.Call) and _parses_json(part) for part in parts):
        return False
    caught = {
        _name_of(part) for kind in kinds for part in ast.walk(kind) if isinstance(part, ast.expr)
    }
    return "ValueError" in caught and not caught & {"RecursionError", "Exception"}


def _parses_json(call: ast.Call) -> bool:
    return ast.unparse(call.func) in {"json.loads", "json.load"}


def _is_not_implemented(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node)


def _is_long_conditional(node: ast.AST) -> bool:
    return isinstance(node, ast.IfExp) and node.end_lineno != node.lineno


def _goes_on_after_a_suggestion(node: ast.AST) -> bool:
    """True for a text such as ``did you mean 'x'?; …``: the question has to be its end."""
    if not isinstance(node, ast.JoinedStr):
        return False
    return (
        any("did_you_mean(" in ast.unparse(part) for part in node.values[:-1])
        or any(
            isinstance(part, ast.FormattedValue)
            and part.conversion == -1  # not the quoted name, as in ``did you mean {suggestion!r}?``
            and ast.unparse(part.value) == "suggestion"
            for part in node.values[:-1]
        )
    )


def _places(bad: Callable[[ast.AST], bool], but: tuple[Path, ...] = ()) -> Iterator[str]:
    for path in modules():
        if not any(path.is_relative_to(folder) for folder in but):
            yield from (place(path, node) for node in nodes_of(path) if bad(node))


def test_code_swallows_no_failure() -> None:
    found = list(_places(_swallows))
    assert not found, "\n".join(found)


def test_code_prints_nothing() -> None:
    found = list(_places(_prints))
    assert not found, "\n".join(found)


def test_code_swallows_no_cancellation() -> None:
    """``asyncio.wait_for`` of Python 3.11 drops one that comes as the wait ends: a lost Ctrl-C."""
    found = list(_places(_waits_for))
    assert not found, "use asyncio.timeout: " + "\n".join(found)


def test_handlers_of_invalid_json_cover_deep_nesting() -> None:
    """``json.loads`` raises ``RecursionError``, which is no ``ValueError``, for ``[[[…``."""
    found = list(_places(_parses_deep_json_unguarded))
    assert not found, "catch RecursionError, too: " + "\n".join(found)


def test_texts_are_normalized_in_linear_time() -> None:
    """``unicodedata.normalize`` takes a time that is quadratic in the accents of one letter."""
    but = (CORE / "src/delf/values/unicode.py", CORE / "src/delf/machine/filenames.py")
    found = list(_places(_normalizes, but=but))
    assert not found, "use delf.values.unicode: " + "\n".join(found)


def test_home_folder_is_determined_in_one_module() -> None:
    """pathlib and platformdirs raise RuntimeError if there is no home folder, or no such user."""
    found = list(_places(_asks_for_home, but=frozenset({CORE / "src/delf/machine/folders.py"})))
    assert not found, "use delf.machine.folders: " + "\n".join(found)


def test_code_has_no_unimplemented_part() -> None:
    found = list(_places(_is_not_implemented))
    assert not found, "\n".join(found)


def test_conditional_expressions_fit_one_line() -> None:
    found = list(_places(_is_long_conditional))
    assert not found, "write an if statement: " + "\n".join(found)


def test_suggestions_end_their_messages() -> None:
    assert [*_places(_goes_on_after_a_suggestion)] == []


def test_code_has_no_todo_note() -> None:
    note = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")  # the words themselves, in any text
    found = [
        f"{place(path)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if note.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        ("try: f()\nexcept Exception: pass", True),
        ("try: f()\nexcept: ...", True),
        ("try: f()\nexcept (ValueError, Exception): pass", True),
        ("with contextlib.suppress(Exception): f()", True),
        ("try: f()\nexcept ValueError: pass", False),
        ("try: f()\nexcept Exception as error: log(error)", False),
    ],
)
def test_swallowing_handlers_are_detected(code: str, bad: bool) -> None:
    assert any(_swallows(node) for node in ast.walk(ast.parse(code))) is bad


def test_module_list_is_complete() -> None:
    assert CORE / "src/delf/errors.py" in set(modules())
    assert all(path.is_relative_to(ROOT) for path in modules())
