"""Public text that a machine has anyway: docstrings of installed packages, and manual pages."""

from __future__ import annotations

import gzip
import inspect
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

_STRING = re.compile(r'("""|\'\'\')(.*?)\1', re.DOTALL)
_ALONE = re.compile(r"(?:^|\n)[ \t]*[rRuU]?$")
_MANUALS = Path("/usr/share/man")
_SECTION = re.compile(r'^\.S[Hh]\s+"?([^"\n]+)"?\s*$', re.MULTILINE)
_TABLE = re.compile(r"^\.TS.*?^\.TE", re.MULTILINE | re.DOTALL)
_PREVIEW = re.compile(r"gcloud_(?:alpha|beta)_")
"""Google's pages are there three times."""
_BREAK = re.compile(r"^\.(?:PP|Pp|P|LP|sp|IP|TP|It|RS|RE|SS|Ss)\b.*$", re.MULTILINE)
_FONT = re.compile(r"^\.(?:B|I|BR|RB|IR|RI|BI|IB|Nm|Fl|Ar|Xr|Cm|Pa|Ev)\s+", re.MULTILINE)
_REQUEST = re.compile(r"^[.'].*$", re.MULTILINE)
_SIGNS = {
    "-": "-",
    "(cq": "'",
    "(aq": "'",
    "(oq": "'",
    "(lq": '"',
    "(rq": '"',
    "(em": "-",
    "e": "\\",
}
_ESCAPE = re.compile(r"\\(?:f(?:\[[^\]]*\]|\(..|.)|s[+-]?\d|\*?(?:\(..|\[[^\]]*\])|.)")


def docstrings() -> Iterator[str]:
    """Yield the docstrings of all installed modules, in the order of their paths."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        text = path.read_text(errors="replace")
        for found in _STRING.finditer(text):
            if _ALONE.search(text, max(0, found.start() - 200), found.start()):
                yield inspect.cleandoc(found[2])


def manuals() -> Iterator[str]:
    """Yield manual pages: the summary line, then the paragraphs of the description."""
    for path in sorted(_MANUALS.glob("man[1-8]/*.gz")):
        if _PREVIEW.match(path.name):
            continue
        try:
            page = gzip.decompress(path.read_bytes()).decode(errors="replace")
        except OSError:
            continue  # a link to what is not installed
        parts = _SECTION.split(page)
        sections = dict(zip(map(str.strip, parts[1::2]), parts[2::2], strict=True))
        name = _plain(sections.get("NAME", ""))
        _, dash, summary = name.partition(" - ")
        if dash and "DESCRIPTION" in sections:
            paragraphs = map(_plain, _BREAK.split(sections["DESCRIPTION"]))
            yield "\n\n".join([summary, *filter(None, paragraphs)])


def _plain(roff: str) -> str:
    """Return a text without roff markup."""
    text = _REQUEST.sub("", _FONT.sub("", _TABLE.sub("", roff)))
    return " ".join(_ESCAPE.sub(lambda m: _SIGNS.get(m[0][1:], ""), text).split())


def pairs_of(texts: Iterable[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return queries with their facts, and other paragraphs, without duplicates and shuffled.

    Args:
        texts: Each with a summary, which is the query, and paragraphs, of which the first is what
            it asks for.
    """
    pairs: dict[str, str] = {}
    others: dict[str, None] = {}
    for text in texts:
        query, *rest = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
        fact = rest[0] if rest else ""
        if 30 <= len(query) <= 200 and 60 <= len(fact) <= 800 and ">>>" not in fact:
            pairs.setdefault(fact, query)
        others.update(dict.fromkeys(part for part in rest if 40 <= len(part) <= 800))
    found = [(query, fact) for fact, query in pairs.items()]
    random.Random(7).shuffle(found)
    return found, [text for text in others if text not in pairs]
