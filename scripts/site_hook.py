"""The site's own part of mkdocs: pages made from the code, and files of the repository.

A link that leads out of ``docs/`` leads to ``repository/`` in the site, where the file is a page:
a README as it is, anything else as its text.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File

from delf.hookspecs import HOOKS
from docs_site.command_line import with_commands
from docs_site.reference import PAGES, errors_table

_ROOT: Final = Path(__file__).parents[1]
_DOCS: Final = _ROOT / "docs"
_PLACE: Final = "repository"
_LINK: Final = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_FENCE: Final = re.compile(r"^ *```")
_CODE: Final = re.compile(r"`[^`]+`")
_COMMENT: Final = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_SHOWN_CODE: Final = re.compile(r"(?<!<pre>)(<code>)([^<]*)(</code>)")
_WITH_DASH: Final = re.compile(r"(?<!\S)[^\s-]*-\S{1,30}(?!\S)")
_ERRORS: Final = "<!-- errors -->\n"
_NOT_SEARCHED: Final = "---\nsearch:\n  exclude: true\n---\n"
_LANGUAGES: Final = {
    ".py": "python", ".toml": "toml", ".json": "json", ".jsonl": "json", ".md": "markdown",
    ".worker": "yaml", ".txt": "text", "": "text",
}  # fmt: skip
"""The languages of files that are shown, for colours; other files are not shown."""


def on_config(config: Any) -> Any:
    """List the pages of all hooks in the navigation."""
    for section in config.nav:
        for item in next(iter(section.values())):
            if isinstance(item, dict) and "Hooks" in item:
                item["Hooks"] = ["reference/hooks.md", *(f"hooks/{name}.md" for name in HOOKS)]
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are made, and all that pages link to outside of ``docs/``."""
    for uri, make in PAGES.items():
        files.append(File.generated(config, uri, content=make()))
    waiting = [*sorted(_DOCS.rglob("*.md")), *sorted(_ROOT.glob("plugins/*/README.md"))]
    seen = set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.is_relative_to(_DOCS):
            files.append(File.generated(config, _uri_of(path), content=_page_of(path)))
        if path.suffix == ".md":
            waiting += _linked(path)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Fill in what is made from the code, and turn links into links of the site."""
    uri = page.file.src_uri
    if uri == "cli.md":
        markdown = with_commands(markdown)
    if uri == "errors.md":
        markdown = markdown.replace(_ERRORS, errors_table())
    if uri in PAGES:
        return "\n".join(map(_with_pipes, markdown.splitlines()))
    place = _ROOT / uri.removeprefix(f"{_PLACE}/") if uri.startswith(_PLACE) else _DOCS / uri
    lines: list[str] = []
    fenced = False
    for line in _COMMENT.sub("", markdown).splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        shown = line if fenced else _LINK.sub(lambda m: _relink(m, place, uri), line)
        lines.append(shown if fenced else _with_pipes(shown))
    return "\n".join(lines)


def on_page_content(html: str, **_: Any) -> str:
    """Keep words of code with a dash, such as an option, on one line."""
    return _SHOWN_CODE.sub(
        lambda code: (
            code[1] + _WITH_DASH.sub(r'<span class="whole">\g<0></span>', code[2]) + code[3]
        ),
        html,
    )


def _with_pipes(line: str) -> str:
    """A row of a table with plain pipes in its code: GitHub needs them escaped, the site not."""
    if not line.lstrip().startswith("|"):
        return line
    return _CODE.sub(lambda found: found[0].replace("\\|", "|"), line)


def _relink(match: re.Match[str], place: Path, uri: str) -> str:
    target = _target(match[2], place)
    if target is None:
        return match[0]
    to = posixpath.relpath(_uri_of(target), posixpath.dirname(uri) or ".")
    return f"{match[1]}{to}{match[3]}"


def _linked(page: Path) -> Iterator[Path]:
    for match in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = _target(match[2], page)
        if target is not None:
            yield target


def _target(link: str, place: Path) -> Path | None:
    """The file that a link of a page means; None where it is an address."""
    if "://" in link or link.startswith("mailto:"):
        return None
    target = Path(os.path.normpath(place.parent / link))
    if target.is_dir():
        target = next(
            (target / name for name in ("README.md", "index.md") if (target / name).exists()),
            target,
        )
    return target if target.exists() else None


def _uri_of(path: Path) -> str:
    if path.is_relative_to(_DOCS):
        return path.relative_to(_DOCS).as_posix()
    uri = f"{_PLACE}/{path.relative_to(_ROOT).as_posix()}"
    return uri if path.suffix in (".md", ".webp") else f"{uri}.md"


def _page_of(path: Path) -> str:
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    name = path.relative_to(_ROOT).as_posix()
    parts = [f"{_NOT_SEARCHED}# {name}"]
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.suffix in _LANGUAGES:
            code = file.read_text(encoding="utf-8")
            parts.append(f"## {file.name}\n````{_LANGUAGES[file.suffix]}\n{code}\n````")
    return "\n\n".join(parts)
