"""The search protocols of three model providers, and of SearXNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from delf.errors import ToolExecutionError
from delf_web.search.found import Findings

_ASK: Final = (
    "Search the web for what follows, and say in a few sentences what you found, with the pages "
    "that say so. Name up to {count} pages.\n\n{query}"
)
_MAX_TOKENS: Final = 4096
_MAX_SEARCHES: Final = 3
_ERROR: Final = "the search failed: {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The query.

    Args:
        text: The text of the query.
        count: The maximum number of pages.
        model: The model's name at its provider.
        domains: The domains to search; empty for all.
        language: The language of the results; only SearXNG uses it.
    """

    text: str
    count: int
    model: str = ""
    domains: tuple[str, ...] = ()
    language: str | None = None

    @property
    def prompt(self) -> str:
        """The question for a model."""
        return _ASK.format(count=self.count, query=self.text)


class Engine(Protocol):
    """A client of one kind of server.

    Attributes:
        root: The address of the provider.
        path: The path of searches, with ``{model}`` for the model.
    """

    root: str
    path: str

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers that name the client."""
        ...

    def body(self, query: Query) -> dict[str, Any]:
        """Return the body of the request."""
        ...

    def read(self, data: Any, findings: Findings) -> dict[str, Any] | None:
        """Parse the response.

        Returns:
            The next request body if the answer continues; None at the end.

        Raises:
            ToolExecutionError: If the response reports a failure.
        """
        ...


def _table(data: Any, name: str) -> Any:
    """Return an object of a response, empty if missing."""
    return data.get(name) or {}


def _list(data: Any, name: str) -> Any:
    """Return a list of a response, empty if missing."""
    return data.get(name) or []


class OpenAI:
    """The Responses API with its tool ``web_search``."""

    root = "https://api.openai.com/v1"
    path = "responses"

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the bearer token."""
        return {"Authorization": f"Bearer {key}"}

    def body(self, query: Query) -> dict[str, Any]:
        """Return the request body, without storage at the provider."""
        tool: dict[str, Any] = {"type": "web_search"}
        if query.domains:
            tool["filters"] = {"allowed_domains": list(query.domains)}
        return {
            "model": query.model,
            "input": query.prompt,
            "tools": [tool],
            "tool_choice": "required",
            "include": ["web_search_call.action.sources"],
            "store": False,
        }

    def read(self, data: Any, findings: Findings) -> dict[str, Any] | None:
        """Collect cited pages with the citing sentences, then the other sources."""
        if data.get("error"):
            raise ToolExecutionError(_ERROR.format(data["error"].get("message")))
        findings.is_cut = data.get("status") == "incomplete"
        sources: list[str] = []
        for item in _list(data, "output"):
            if item["type"] == "web_search_call":
                action = _table(item, "action")
                sources += [source["url"] for source in _list(action, "sources") if "url" in source]
            elif item["type"] == "message":
                for part in item["content"]:
                    if part["type"] == "output_text":
                        findings.answer += part["text"]
                        _collect_citations(part, findings)
        for url in sources:
            findings.add(url)
        return None


def _collect_citations(part: Any, findings: Findings) -> None:
    """Collect the pages that a text cites, each with the citing line."""
    text: str = part["text"]
    for note in _list(part, "annotations"):
        if note.get("type") == "url_citation":
            start = note.get("start_index", 0)
            line = text[text.rfind("\n", 0, start) + 1 : start]
            findings.add(note["url"], note.get("title") or "", line.strip(" (-*"))


class Anthropic:
    """The Messages API with its tool ``web_search``."""

    root = "https://api.anthropic.com"
    path = "v1/messages"

    def __init__(self) -> None:
        self._sent: dict[str, Any] = {}

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the key and the version of the protocol."""
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def body(self, query: Query) -> dict[str, Any]:
        """Return the request body, with a limit on searches."""
        tool: dict[str, Any] = {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": _MAX_SEARCHES,
        }
        if query.domains:
            tool["allowed_domains"] = list(query.domains)
        self._sent = {
            "model": query.model,
            "max_tokens": _MAX_TOKENS,
            "messages": [{"role": "user", "content": query.prompt}],
            "tools": [tool],
        }
        return self._sent

    def read(self, data: Any, findings: Findings) -> dict[str, Any] | None:
        """Collect found pages with their cited passages."""
        failed = ""
        for block in _list(data, "content"):
            if block["type"] == "web_search_tool_result":
                if isinstance(block["content"], dict):
                    failed = _table(block, "content").get("error_code", "unknown")
                    continue
                for page in _list(block, "content"):
                    findings.add(page["url"], page.get("title") or "")
            elif block["type"] == "text":
                findings.answer += block["text"]
                for note in _list(block, "citations"):
                    findings.add(note["url"], note.get("title") or "", note.get("cited_text", ""))
        if failed and not findings.results:
            raise ToolExecutionError(_ERROR.format(failed))
        findings.is_cut = data.get("stop_reason") == "max_tokens"
        if data.get("stop_reason") == "pause_turn":  # the model asks to continue
            turn = {"role": "assistant", "content": data["content"]}
            self._sent = {**self._sent, "messages": [*self._sent["messages"], turn]}
            return self._sent
        return None


class Google:
    """Gemini's ``generateContent``, grounded by Google's search."""

    root = "https://generativelanguage.googleapis.com"
    path = "v1beta/models/{model}:generateContent"

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the key."""
        return {"x-goog-api-key": key}

    def body(self, query: Query) -> dict[str, Any]:
        """Return the request body."""
        return {
            "contents": [{"role": "user", "parts": [{"text": query.prompt}]}],
            "tools": [{"googleSearch": {}}],
        }

    def read(self, data: Any, findings: Findings) -> dict[str, Any] | None:
        """Collect pages that support the answer, with the supported sentences."""
        candidates = _list(data, "candidates")
        if not candidates:
            why = _table(data, "promptFeedback").get("blockReason", "no answer")
            raise ToolExecutionError(_ERROR.format(why))
        first = candidates[0]
        parts = _table(first, "content").get("parts") or ()
        findings.answer += "".join(p.get("text", "") for p in parts if not p.get("thought"))
        findings.is_cut = first.get("finishReason", "STOP") != "STOP"
        grounds = _table(first, "groundingMetadata")
        pages = [_table(chunk, "web") for chunk in _list(grounds, "groundingChunks")]
        for page in pages:
            findings.add(page.get("uri", ""), page.get("title") or "")
        for support in _list(grounds, "groundingSupports"):
            words = _table(support, "segment").get("text", "")
            for index in _list(support, "groundingChunkIndices"):
                if 0 <= index < len(pages):
                    findings.add(pages[index].get("uri", ""), "", words)
        return None


class SearXNG:
    """A SearXNG server that gives JSON."""

    def query(self, query: Query) -> str:
        """Return the query string of the URL."""
        sites = " OR ".join(f"site:{name}" for name in query.domains)
        fields = {"q": f"{query.text} {sites}".strip(), "format": "json"}
        if query.language:
            fields["language"] = query.language
        return f"search?{urlencode(fields)}"

    def read(self, data: Any, findings: Findings) -> None:
        """Add pages and direct answers of engines."""
        answers = [
            item if isinstance(item, str) else item.get("answer", "")
            for item in _list(data, "answers")
        ]
        findings.answer = "\n".join(filter(None, answers))
        for page in _list(data, "results"):
            findings.add(page.get("url") or "", page.get("title") or "", page.get("content") or "")
