"""The hooks are what plugin authors have: each has its page, its example and its tests."""

import dataclasses
import importlib
import inspect
import re
from typing import Any

import pytest

from delf import hookspecs
from delf.hookspecs import HOOKS
from delf.plugins.shapes import PROTOCOLS
from delf_devkit.testing.contracts.base import Contract
from support.workspace import LIBRARIES, PLUGINS, ROOT, Library

from .pages import blocks_of

pytestmark = pytest.mark.docs

HOOKS_FOLDER = ROOT / "docs/hooks"
SUITES = {
    "delf_connections": "ConnectionContract",
    "delf_sandbox_backends": "SandboxContract",
    "delf_memory_stores": "MemoryContract",
    "delf_prefilters": "PrefilterContract",
    "delf_embedders": "EmbedderContract",
    "delf_file_formats": "FormatContract",
    "delf_approval_channels": "ApprovalContract",
    "delf_models": "ModelContract",
    "delf_journals": "JournalContract",
    "delf_strategies": "StrategyContract",
    "delf_observers": "ObserverContract",
    "delf_commands": "PluginContract",
}
SECTIONS = ["## When delf uses it", "## The factory", "## Example", "## Testing"]

every_hook = pytest.mark.parametrize("hook", list(HOOKS))


def page_of(hook: str) -> str:
    return (HOOKS_FOLDER / f"{hook}.md").read_text(encoding="utf-8")


def python_of(hook: str) -> list[str]:
    return [block.code for block in blocks_of(page_of(hook)) if block.language == "python"]


def test_there_is_a_page_for_every_hook_and_no_other() -> None:
    assert {path.stem for path in HOOKS_FOLDER.glob("*.md")} == set(HOOKS)
    assert set(SUITES) == set(HOOKS)


@every_hook
def test_the_page_has_the_exact_signature(hook: str) -> None:
    returns = inspect.signature(getattr(hookspecs, hook)).return_annotation
    assert f"def {hook}() -> {returns}: ...\n" in python_of(hook)[0]
    assert page_of(hook).startswith(f"# {hook}\n")


@every_hook
def test_the_page_has_its_sections(hook: str) -> None:
    headings = re.findall(r"^## .*$", page_of(hook), re.MULTILINE)
    assert len(headings) == len(SECTIONS)
    for heading, wanted in zip(headings, SECTIONS, strict=True):
        assert heading.startswith(wanted)


@every_hook
def test_the_page_has_every_field_of_the_spec(hook: str) -> None:
    fields = [field.name for field in dataclasses.fields(HOOKS[hook])]
    rows = re.findall(r"^\| `(\w+)` \|", page_of(hook).partition("## When")[0], re.MULTILINE)
    assert sorted(rows) == sorted(fields)


@every_hook
def test_the_page_has_every_method_of_the_protocol(hook: str) -> None:
    protocol: Any = PROTOCOLS.get(HOOKS[hook].kind)
    if protocol is None:
        return
    text = page_of(hook).partition("## The factory")[2].partition("## Example")[0]
    for name, member in vars(protocol).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            arguments = ", ".join(list(inspect.signature(member).parameters)[1:])
            assert f"`{name}({arguments})`" in text


@every_hook
def test_the_page_has_an_example_of_a_plugin(hook: str) -> None:
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
def test_the_page_tests_its_example(hook: str) -> None:
    suite = SUITES[hook]
    tests = [b.code for b in blocks_of(page_of(hook)) if (b.file or "").startswith("tests/")]
    assert any(re.search(rf"^class Test\w+\({suite}\):", code, re.MULTILINE) for code in tests)


@every_hook
def test_the_suite_itself_is_tested(hook: str) -> None:
    kind = HOOKS[hook].kind
    broken = ROOT / f"tests/plugins/devkit/broken/{'plugin' if kind == 'command' else kind}.py"
    assert SUITES[hook] in broken.read_text(encoding="utf-8")


def test_every_suite_is_on_the_page_about_testing() -> None:
    import delf.testing

    page = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    found: dict[str, str] = dict(re.findall(r"^\| `(\w+Contract)` \|(.*)\|$", page, re.MULTILINE))
    suites = {name: getattr(delf.testing, name) for name in delf.testing.__all__}
    suites = {
        n: cls for n, cls in suites.items() if isinstance(cls, type) and issubclass(cls, Contract)
    }
    assert set(found) == set(suites)
    for name, cls in suites.items():
        flags = set(re.findall(r"`(\w+)`", found[name]))
        assert flags == _settings_of(cls), name


def _settings_of(suite: type) -> set[str]:
    """The class attributes and fixtures that a suite lets its subclasses set."""
    names: set[str] = set()
    for cls in suite.__mro__:
        if cls is Contract or not issubclass(cls, Contract):
            continue
        for name, value in vars(cls).items():
            plain = not name.startswith(("_", "test_")) and not inspect.isfunction(value)
            if plain and not isinstance(value, property) and not _is_cached(value):
                names.add(name)
    return names - {"question"}


def _is_cached(value: object) -> bool:
    return type(value).__name__ == "cached_property"


def test_the_list_of_hooks_in_the_design_is_complete() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    for hook in HOOKS:
        assert f"(hooks/{hook}.md)" in index


def test_pages_import_what_is_public() -> None:
    hidden = re.compile(r"^\s*(?:from|import) (delf\.\w+(?:\.\w+)*)", re.MULTILINE)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in blocks_of(path.read_text(encoding="utf-8")):
            for module in hidden.findall(block.code if block.language == "python" else ""):
                assert "._" not in module, f"{path}: {module}"


def libraries_of(kind: str) -> set[str]:
    """Libraries that plugins of one kind use; that of commands is theirs alone."""
    found: set[str] = set()
    for package in (*PLUGINS, *LIBRARIES):
        plugin = importlib.import_module(f"{package.module}.plugin") if has_hooks(package) else None
        kinds = {HOOKS[hook].kind for hook in HOOKS if hasattr(plugin, hook)}
        own = {"delf-cli"} if "command" in kinds else set[str]()
        if kinds == {"command"} == {kind}:
            found |= needs(package) & own
        elif kinds - {"command"} == {kind}:
            found |= needs(package) - own
    return found


def has_hooks(package: Library) -> bool:
    return (package.source / "plugin.py").exists()


def needs(package: Library) -> set[str]:
    lines = package.metadata["project"]["dependencies"]
    libraries = {f"delf-{library.name}" for library in LIBRARIES}
    return libraries & {re.split(r"[\[<>=~! ;]", line, maxsplit=1)[0] for line in lines}


@every_hook
def test_the_table_says_which_protocol_libraries_and_suite(hook: str) -> None:
    page = (ROOT / "docs/plugins/index.md").read_text(encoding="utf-8")
    (row,) = re.findall(
        rf"^\| `\w+` \| \[{hook}\]\(\.\./hooks/{hook}\.md\) \|.*$", page, re.MULTILINE
    )
    _, _, _, made, libraries, suite, _ = (cell.strip() for cell in row.split("|"))
    assert suite == f"`{SUITES[hook]}`"
    kind = PROTOCOLS.get(HOOKS[hook].kind)
    if kind is not None and hook != "delf_connections":  # those are a base class
        assert made == f"`{kind.__module__}.{kind.__name__}`"
    assert set(re.findall(r"`([\w-]+)`", libraries)) == libraries_of(HOOKS[hook].kind)
