"""The documentation: links lead somewhere, examples run, tables say what the code does."""

import ast
import email.message
import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from delf.errors import DelfError
from delf.protocols.connection import ConnectionLike
from delf.values import encoding as values
from delf_engine.project.files import read_config
from delf_engine.toolset import check_connection_names
from delf_sandbox.guest import frames
from support import words
from support.every_error import EVERY
from support.google import google_server
from support.google.fixtures import ALL, USER
from support.tables import (
    DIRECTORY,
    WITH_OPTIONAL,
    hook_page,
    with_fields,
    with_optional,
    with_others,
    with_tables,
)
from support.tables import PAGE as CONFIGURATION
from support.workspace import ROOT

from . import pages
from .pages import PageError, run_page

pytestmark = pytest.mark.docs

PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "core/*.md",
        "libs/*/*.md",
        "plugins/*/*.md",
        "docs/**/*.md",
        "examples/**/*.md",
    )
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
PYTHON = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SILENT = re.compile(r"print\((?:\w+\.)*run\((?:(?!raise_for_status).)*\)\.text\)")
"""A printed answer that is empty if the task failed."""
SETTINGS = re.compile(r"^```toml[^\n]*\n(# delf\.toml\n.*?)^```", re.MULTILINE | re.DOTALL)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_relative_links_name_existing_files(page: Path) -> None:
    targets = [link for link in LINK.findall(page.read_text()) if "://" not in link]
    missing = [link for link in targets if not (page.parent / link).exists()]
    assert not missing


@every_page
def test_python_examples_compile(page: Path) -> None:
    for example in PYTHON.findall(page.read_text()):
        assert compile(example, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@every_page
def test_examples_print_why_a_task_failed(page: Path) -> None:
    silent = [line for each in PYTHON.findall(page.read_text()) for line in SILENT.findall(each)]
    assert not silent, "print(agent.run(…)) also shows an error"


@every_page
def test_configuration_examples_are_valid(page: Path, tmp_path: Path) -> None:
    for number, example in enumerate(SETTINGS.findall(page.read_text())):
        copy = tmp_path / f"{number}.toml"
        copy.write_text(example)
        assert read_config(copy)


TABLES = re.compile(r"^```toml[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTION = re.compile(r"^\[connections\.([^.\]]+)", re.MULTILINE)


@dataclass
class Named:
    """A connection of which only the name is known."""

    name: str


@every_page
def test_connections_of_configuration_examples_have_usable_names(page: Path) -> None:
    for example in TABLES.findall(page.read_text()):
        names = dict.fromkeys(SECTION.findall(example))
        try:
            check_connection_names([cast("ConnectionLike", Named(name)) for name in names])
        except DelfError as error:
            pytest.fail(error.message)


RUNNABLE = [page for page in PAGES if page.parent == ROOT or page.is_relative_to(ROOT / "docs")]

MAILBOX = ROOT / "docs/learn/your-mailbox.md"
"""The page whose reader has a mailbox at Google: here it is on loopback."""


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page: Path, tmp_path: Path) -> None:
    if page == MAILBOX:
        with mailbox(tmp_path) as variables:
            run_page(page, tmp_path, more=variables)
    else:
        run_page(page, tmp_path)


@contextmanager
def mailbox(folder: Path) -> Iterator[dict[str, str]]:
    """A mailbox with one unread mail, and the file of a login in the folder of the page."""
    message = email.message.EmailMessage()
    message["From"], message["To"], message["Subject"] = "bob@example.com", USER, "Invoice 7"
    message["Message-ID"] = "<7@example.com>"
    message.set_content("Please pay.")
    with google_server() as google:
        google.gmail.deliver(USER, message.as_bytes())
        google.gmail.box("bob@example.com")
        login = google.logins.authorized_user(google.url, USER, ALL)
        (folder / "client_secrets.json").write_text(json.dumps(login))
        yield {"DELF_MAIL_BASE_URL": google.url}
        answers = google.gmail.box("bob@example.com").mails.values()
        assert ["paid on monday" in mail.words for mail in answers] == [True]


AGENT = """
from delf import Agent
with Agent(llm="gpt-4o-mini") as agent:
    print(agent.run("Say hello.").text)
"""
PLUGIN = "```python\n# src/delf_x/plugin.py\nimport nowhere\n```\n\n"
UNBUILT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "delf-plugin-x"
version = "1"
[project.entry-points.delf]
x = "delf_x.plugin"
"""
HELLO = "<!-- model answers\nprint('hello')\n-->\n"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "says that it prints"),
        ("```console\n$ delf toast\n```\n", "'delf toast' fails"),
        (f"```python{AGENT}```\n", "asked 1 times, and the page has 0 answers"),
        (f"{HELLO}```python\nprint(1)\n```\n", "asked 0 times, and the page has 1 answers"),
        ("```python\n# tests/test_a.py\ndef test_a(): assert 0\n```\n", "its tests fail"),
        (f"{PLUGIN}```toml\n{UNBUILT}```\n", "its package cannot be built"),
        (f'{PLUGIN}```toml\n[project.entry-points.delf]\nx = "delf_x.plugin"\n```\n', "is failed"),
    ],
    ids=["error", "output", "command", "unanswered", "unasked", "test", "package", "plugin"],
)
def test_failing_page_example_is_detected(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(PageError, match=problem):
        run_page(page, tmp_path / "folder")


@pytest.mark.timeout(60)
def test_real_model_is_asked_over_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(f"{HELLO}```python{AGENT}```\n\n```text\nhello\n```\n")
    run_page(page, tmp_path / "folder")


def test_documented_agent_fields_match_the_code() -> None:
    text = CONFIGURATION.read_text(encoding="utf-8")
    assert with_tables(text) == text, "make generated"


def test_directory_page_lists_third_party_plugins() -> None:
    text = DIRECTORY.read_text(encoding="utf-8")
    assert with_others(text) == text, "make generated"


@pytest.mark.parametrize("kind", WITH_OPTIONAL)
def test_hook_page_lists_optional_methods_with_types(kind: str) -> None:
    text = hook_page(kind).read_text(encoding="utf-8")
    assert "<!-- optional members" in text
    assert with_optional(text, kind) == text, "make generated"


def test_approval_page_lists_request_fields() -> None:
    text = hook_page("approval").read_text(encoding="utf-8")
    assert "| `origins` |" in text
    assert with_fields(text) == text, "make generated"


@pytest.mark.parametrize("page", [*words.pages()], ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_lists_match_the_code(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the tests change a default of the local sandbox
    text = page.read_text(encoding="utf-8")
    assert words.made(page, text) == text, "make generated"


def test_model_page_lists_provider_fields() -> None:
    text = hook_page("model").read_text(encoding="utf-8")
    assert "| `login` |" in text
    assert with_fields(text) == text, "make generated"


def test_every_error_has_a_paragraph() -> None:
    page = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    written = dict(re.findall(r"^## (\S+ \w+)\n(.+?)(?=\n## |\Z)", page, re.MULTILINE | re.DOTALL))
    known = {f"{cls.code} {cls.__name__}" for cls in EVERY}
    assert set(written) == known
    short = [heading for heading, text in written.items() if len(text.split()) < 8]
    assert not short


def test_documented_frames_match_the_code() -> None:
    page = (ROOT / "docs/wire.md").read_text(encoding="utf-8")
    doc = inspect.getdoc(frames) or ""
    for direction in ("host to guest", "guest to host"):
        shown = re.search(rf"<!-- frames: {direction} -->\n```json\n(.*?)```", page, re.DOTALL)
        (coded,) = re.findall(
            rf"^{direction.capitalize()}::\n\n(.*?)(?=\n\S|\Z)", doc, re.MULTILINE | re.DOTALL
        )
        assert shown is not None
        assert shown[1].strip() == inspect.cleandoc(coded).strip()


def test_documented_tags_match_the_code() -> None:
    page = (ROOT / "docs/wire.md").read_text(encoding="utf-8")
    table = page.partition("<!-- tags -->")[2].partition("\n\n")[0]
    named: set[str] = set()
    for row in table.splitlines()[3:]:
        named |= set(re.findall(r"`(\w+)`", row.split("|")[1]))
    assert named == set(values.DECODERS)


def test_index_names_every_page() -> None:
    """The table of kinds has the pages of hooks."""
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text(encoding="utf-8")
    kinds = (docs / "plugins/index.md").read_text(encoding="utf-8")
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")}
    hooks = {link.removeprefix("../") for link in LINK.findall(kinds) if "hooks/" in link}
    linked = {link for link in LINK.findall(index) if "/../" not in f"/{link}"}
    assert linked | hooks == pages - {"index.md"}


def test_benchmark_page_lists_every_benchmark() -> None:
    named = set(re.findall(r"bench_\w+\.py", (ROOT / "docs/benchmarks.md").read_text()))
    assert named == {path.name for path in (ROOT / "benchmarks").glob("bench_*.py")}
