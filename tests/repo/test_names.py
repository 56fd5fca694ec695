"""Packages that messages and pages name for installation are delf's; `delf` on the index is not."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from delf.errors import PluginError
from delf.hookspecs import DISTRIBUTION
from delf.packages.official import PLUGIN_PREFIX, all_packages
from delf_console.sources import Sources
from support.workspace import CORE, LIBRARIES, PLUGINS, ROOT, modules, nodes_of, place

OURS = all_packages() | {DISTRIBUTION}
# Plugins that pages and scaffolds make up, for their readers to write.
MADE_UP = {
    f"{PLUGIN_PREFIX}{name}"
    for name in ("tickets", "help-desk", "hello", "sandbox-firecracker", "NAME")
}
KINDS = {".md", ".txt", ".py", ".toml", ".json", ".js", ".html", ".yml", ".yaml", ""}
PLACES = ("docs", "core", "libs", "plugins", "examples", "benchmarks", "scripts")
EXTRA_OF_ANOTHER = re.compile(r"(?<![\w./-])delf\[\s*[a-z]")
REQUIREMENT = re.compile(r"(?<![\w./-])(delf[\w.-]*)(?:\[[\w, -]*\])?\s*(?:[<>]=?|[=~!]=)\s*\d")
PLUGIN = re.compile(rf"(?<![\w./]){PLUGIN_PREFIX}(?!api-)[A-Za-z][\w-]*(?<![-_])")
ON_THE_INDEX = re.compile(r"pypi\.org/project/(delf[\w.-]*)")
INSTALLING = re.compile(
    r"(?:pip3?|uv|pipx|poetry|conda)\s+(?:pip\s+|tool\s+)?(?:install|add|download|wheel)\s+(.*)"
    r"|(?:uvx|pipx run|uv tool run)\s+(.*)"
)
BY_DELF = re.compile(r"delf plugins install ([^`\n#()|;]*)")
END_OF_COMMAND = re.compile(r"[`#|;&()]|''|\"\"|\.\s|, |$")


def texts() -> Iterator[Path]:
    """Every file of the project that somebody may read, or run."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))
    yield from (ROOT / name for name in ("Makefile", "pyproject.toml", "requirements-dev.txt"))
    for folder in PLACES:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = any(part.startswith((".", "__")) for part in path.relative_to(ROOT).parts[:-1])
            if path.is_file() and path.suffix in KINDS and not hidden:
                yield path


def wrong_in(text: str) -> list[str]:
    """The names in a text that are another's, or nobody's."""
    found = [match[0] for match in EXTRA_OF_ANOTHER.finditer(text)]
    found += [m[0] for m in REQUIREMENT.finditer(text) if m[1] not in OURS | MADE_UP]
    found += [m[0] for m in PLUGIN.finditer(text) if m[0] not in OURS | MADE_UP]
    found += [m[0] for m in ON_THE_INDEX.finditer(text) if m[1] not in OURS]
    for match in INSTALLING.finditer(text):
        command = END_OF_COMMAND.split(match[1] or match[2] or "")[0]
        names = [re.split(r"[\[<>=~! ]", word.strip("'\",\\"))[0] for word in command.split()]
        found += [name for name in names if name.startswith("delf") and name not in OURS | MADE_UP]
    return found


@pytest.mark.parametrize(
    "text",
    [
        "pip install delf",
        "run `pip install delf` first",
        'pip install -U "delf"',
        "uv add delf",
        "uvx delf run",
        'pip install "delf[standard]"',
        "with `delf[chat]`",
        'dependencies = ["delf>=0.1,<1"]',
        "pip install delf-plugin-gmial",
        "pip install delf-sql",
        "[delf](https://pypi.org/project/delf/)",
        "uv pip install --find-links dist delf",
    ],
)
def test_wrong_package_name_is_detected(text: str) -> None:
    assert wrong_in(text)


@pytest.mark.parametrize(
    "text",
    [
        'pip install "delf-core[standard]" delf-plugin-sql',
        "uv run delf plugins",
        'keywords = ["delf", "delf-plugin-api-1"]',
        "pip install delf-plugin-tickets, then `delf inspect tickets`",
    ],
)
def test_correct_package_name_is_accepted(text: str) -> None:
    assert not wrong_in(text)


def test_published_text_names_no_foreign_package() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts()
        for name in wrong_in(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)


def test_package_name_check_reads_every_published_file() -> None:
    seen = set(texts())
    assert {ROOT / "README.md", CORE / "README.md", CORE / "pyproject.toml"} <= seen
    for package in (*PLUGINS, *LIBRARIES):
        assert {package.folder / "README.md", package.folder / "pyproject.toml"} <= seen
    assert set(modules()) <= seen
    assert any("templates" in path.parts for path in seen)


def test_suggested_plugins_can_be_installed() -> None:
    unknown: list[str] = []
    for path in texts():
        for match in BY_DELF.finditer(path.read_text(encoding="utf-8")):
            typed = re.sub(r"--find-links \S+", "", match[1].replace("\\", ""))
            for word in typed.split():
                name = word.strip("'\".,")
                if re.fullmatch(r"[a-z][\w.-]*(\[[\w,-]+\])?", name):
                    try:
                        Sources().items([name])
                    except PluginError as error:
                        unknown.append(f"{path.relative_to(ROOT)}: {error.message}")
    assert not unknown, "\n".join(unknown)


def test_install_hints_name_existing_packages() -> None:
    wrong = [
        f"{place(path, node)}: {text}"
        for path in modules()
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and _called(node) in {"how_to_install", "optional"}
        for text in _texts_in(node)
        if text.replace("_", "-") not in OURS
    ]
    assert not wrong, "\n".join(wrong)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _texts_in(call: ast.Call) -> Iterator[str]:
    """The package that a call names: its first argument, without extras."""
    for argument in call.args[:1]:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield argument.value.partition("[")[0]


def test_files_have_no_merge_conflict_markers() -> None:
    mark = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    found = [place(path) for path in texts() if mark.search(path.read_text("utf-8", "replace"))]
    assert not found, "\n".join(found)


FROM_AN_INDEX = re.compile(r"(?:pip3?|uv|pipx)\s+(?:pip\s+|tool\s+)?install\s[^`\n]*\bdelf-[a-z]")


def test_pip_commands_appear_only_on_the_install_page():
    pages = {path for path in texts() if FROM_AN_INDEX.search(path.read_text(encoding="utf-8"))}
    allowed = {ROOT / "docs/index.md", ROOT / "core/src/delf/packages/namesake.py"}
    assert {str(path.relative_to(ROOT)) for path in pages - allowed} == set()
