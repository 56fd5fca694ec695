"""Results of a search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict
from urllib.parse import urlsplit


class Result(TypedDict):
    """A page found by a search."""

    title: str
    url: str
    snippet: str


class Found(TypedDict):
    """The result of a search: an answer in words, and the found pages."""

    answer: str
    results: list[Result]


@dataclass(slots=True)
class Findings:
    """Collects the results of a search.

    Args:
        answer: The answer in words, as far as received.
        results: The found pages by URL, in the order in which they were first named.
        is_cut: Whether the answer was truncated.
    """

    answer: str = ""
    results: dict[str, Result] = field(default_factory=dict[str, Result])
    is_cut: bool = False

    def add(self, url: str | None, title: str | None = None, snippet: str | None = None) -> None:
        """Add a page; merge titles and snippets of the same page. Ignore a page without a URL."""
        if not url or not url.lower().startswith(("http://", "https://")):
            return
        result = self.results.setdefault(url, Result(title="", url=url, snippet=""))
        result["title"] = result["title"] or " ".join((title or "").split())
        snippet = " ".join((snippet or "").split())
        if snippet and snippet not in result["snippet"]:
            snippets = filter(None, (result["snippet"], snippet))
            result["snippet"] = " … ".join(snippets)


def is_below(url: str, domains: tuple[str, ...]) -> bool:
    """Return True if the host of a URL is one of the domains or a subdomain of one."""
    try:
        host = (urlsplit(url).hostname or "").lower()
    except ValueError:  # not a valid URL
        return False
    return any(host == name.lower() or host.endswith(f".{name.lower()}") for name in domains)
