"""The hooks are what plugin authors have: each has its page, its example and its tests."""

import dataclasses
import inspect
import re
from typing import Any

import pytest

from delf.hookspecs import HOOKS
from delf.plugins.shapes import protocol_of
from support.kinds import suite_of
from support.workspace import ROOT

from .pages import blocks_of

pytestmark = pytest.mark.docs

HOOKS_FOLDER = ROOT / "docs/hooks"
SECTIONS = ["## When delf uses it", "## The factory", "## Example", "## Testing"]

every_hook = pytest.mark.parametrize("hook", list(HOOKS))


def page_of(hook: str) -> str:
    return (HOOKS_FOLDER / f"{hook}.md").read_text(encoding="utf-8")


def python_of(hook: str) -> list[str]:
    return [block.code for block in blocks_of(page_of(hook)) if block.language == "python"]


def test_hook_pages_match_the_hooks() -> None:
    assert {path.stem for path in HOOKS_FOLDER.glob("*.md")} == set(HOOKS)


@every_hook
def test_hook_page_has_the_exact_signature(hook: str) -> None:
    returns = HOOKS[hook].__name__
    assert f"def {hook}() -> Iterable[{returns}]: ...\n" in python_of(hook)[0]
    assert page_of(hook).startswith(f"# {hook}\n")


@every_hook
def test_hook_page_has_its_sections(hook: str) -> None:
    headings = re.findall(r"^## .*$", page_of(hook), re.MULTILINE)
    assert len(headings) == len(SECTIONS)
    for heading, wanted in zip(headings, SECTIONS, strict=True):
        assert heading.startswith(wanted)


@every_hook
def test_hook_page_has_every_spec_field(hook: str) -> None:
    fields = [field.name for field in dataclasses.fields(HOOKS[hook])]
    rows = re.findall(r"^\| `(\w+)` \|", page_of(hook).partition("## When")[0], re.MULTILINE)
    assert sorted(rows) == sorted(fields)


@every_hook
def test_hook_page_has_every_protocol_method(hook: str) -> None:
    protocol = protocol_of(HOOKS[hook].kind)
    if protocol is None:
        return
    declared: dict[str, Any] = dict(vars(protocol))
    text = page_of(hook).partition("## The factory")[2].partition("## Example")[0]
    for name, member in declared.items():
        if inspect.isfunction(member) and not name.startswith("_"):
            arguments = ", ".join(list(inspect.signature(member).parameters)[1:])
            assert f"`{name}({arguments})`" in text


@every_hook
def test_hook_page_has_a_plugin_example(hook: str) -> None:
    code = "\n".join(python_of(hook)[1:])
    assert re.search(
        rf"^@hookimpl\ndef {hook}\(\) -> Iterable\[{HOOKS[hook].__name__}\]:", code, re.MULTILINE
    )
    factories = re.findall(r'factory="([\w.]+):(\w+)"', code)
    files = {block.file for block in blocks_of(page_of(hook))}
    for module, attribute in factories:
        assert f"src/{module.replace('.', '/')}.py" in files
        assert re.search(rf"^(class|def) {attribute}\b", code, re.MULTILINE)


@every_hook
def test_hook_page_tests_its_example(hook: str) -> None:
    suite = suite_of(HOOKS[hook].kind)
    tests = [b.code for b in blocks_of(page_of(hook)) if (b.file or "").startswith("tests/")]
    assert any(re.search(rf"^class Test\w+\({suite}\):", code, re.MULTILINE) for code in tests)


@every_hook
def test_contract_suite_is_tested_by_a_broken_plugin(hook: str) -> None:
    kind = HOOKS[hook].kind
    broken = ROOT / f"tests/plugins/devkit/broken/{kind}.py"
    assert suite_of(kind) in broken.read_text(encoding="utf-8")


def test_pages_import_only_public_names() -> None:
    hidden = re.compile(r"^\s*(?:from|import) (delf\.\w+(?:\.\w+)*)", re.MULTILINE)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in blocks_of(path.read_text(encoding="utf-8")):
            for module in hidden.findall(block.code if block.language == "python" else ""):
                assert "._" not in module, f"{path}: {module}"
