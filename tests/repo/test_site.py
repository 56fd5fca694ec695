"""The documentation as a site: it is built without a warning, and its made pages have everything."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from delf.events import Event
from delf.hookspecs import HOOKS
from delf_serve.operations import OPERATIONS
from docs_site.command_line import commands, options_of
from support.every_error import EVERY
from support.workspace import PLUGINS, ROOT

pytestmark = [pytest.mark.docs, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--site-dir", folder]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def text_of(site: Path, page: str) -> str:
    """The text of a page, without its marks."""
    found = (site / page / "index.html").read_text(encoding="utf-8")
    article = found.partition("<article")[2].partition("</article>")[0]
    return html.unescape(re.sub(r"<[^>]+>", "", article))


def test_site_has_four_parts_after_its_start_page(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    tabs = start.partition('class="md-tabs__list"')[2].partition("</nav>")[0]
    names = [name.strip() for name in re.findall(r'class="md-tabs__link">([^<]+)<', tabs)]
    assert names == ["Start", "Learn", "Do", "Look up", "Understand"]


def test_code_in_tables_is_shown_unescaped(site: Path) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    shown = re.compile(r"<code>[^<]*\\\|[^<]*</code>")
    assert not [str(page.relative_to(site)) for page, text in pages.items() if shown.search(text)]


def test_names_in_tables_are_not_wrapped(site: Path) -> None:
    assert 'href="../assets/site.css"' in (site / "cli/index.html").read_text(encoding="utf-8")
    rules = (site / "assets/site.css").read_text(encoding="utf-8")
    assert "word-break: normal" in rules.partition("td code")[2].partition("}")[0]


def test_help_shows_no_mark_of_click() -> None:
    assert [words for words, ctx in commands().items() if r"\b" in (ctx.command.help or "")] == []


def test_site_lists_every_option(site: Path) -> None:
    text = " ".join(text_of(site, "cli").split())
    for words, ctx in commands().items():
        assert words in text
        for option in options_of(ctx):
            assert option.flag in text, f"{words} {option.flag}"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("reference/events", [cls.__name__ for cls in get_args(Event)]),
        ("reference/hooks", list(HOOKS)),
        ("reference/http", [f"{one.method} {one.path}" for one in OPERATIONS]),
        ("reference/catalogue", [plugin.name for plugin in PLUGINS]),
        ("errors", [f"{cls.code} {cls.__name__}" for cls in EVERY]),
        ("reference/settings", ["statement_timeout", "oauth_credentials", "webhook_secret"]),
    ],
)
def test_generated_page_lists_every_name(site: Path, page: str, names: list[str]) -> None:
    text = text_of(site, page)
    missing = [name for name in names if name not in text]
    assert not missing


def test_site_search_index_has_key_pages(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"learn/your-database/", "cli/", "glossary/", "repository/plugins/sql/"} <= found


def test_site_pages_load_nothing_external(site: Path) -> None:
    for page in site.rglob("*.html"):
        taken = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)', page.read_text()
        )
        assert not taken, page
