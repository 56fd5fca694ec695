"""The search protocols of three model providers, and of SearXNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from delf.errors import ToolExecutionError
from delf_web.search.found import Findings

_PROMPT: Final = (
    "Search the web for what follows, and say in a few sentences what you found, with the pages "
    "that say so. Name up to {count} pages.\n\n{query}"
)
_MAX_TOKENS: Final = 4096
_MAX_SEARCHES: Final = 3
_ERROR: Final = "the search failed: {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A web search.

    Args:
        text: The text to search for.
        count: The maximum number of pages.
        model: The name that the provider uses for the model; empty for SearXNG.
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
        """The prompt that asks a model to search."""
        return _PROMPT.format(count=self.count, query=self.text)


class Engine(Protocol):
    """The web search protocol of a model provider.

    Attributes:
        root: The provider's base URL.
        path: The path of requests, with ``{model}`` as placeholder for the model's name.
    """

    root: str
    path: str

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the API key."""
        ...

    def body(self, query: Query) -> dict[str, Any]:
        """Return the request body for a search."""
        ...

    def read(self, data: Any, findings: Findings) -> dict[str, Any] | None:
        """Add the results in a response to the findings.

        Returns:
            The body of the next request if the answer is incomplete, else None.

        Raises:
            ToolExecutionError: If the response reports a failure.
        """
        ...


def _object_in(data: Any, name: str) -> Any:
    return data.get(name) or {}


def _list_in(data: Any, name: str) -> Any:
    return data.get(name) or []


class OpenAI:
    """OpenAI's Responses API with the tool ``web_search``."""

    root = "https://api.openai.com/v1"
    path = "responses"

    def headers(self, key: str) -> dict[str, str]:
        """Return the ``Authorization`` header."""
        return {"Authorization": f"Bearer {key}"}

    def body(self, query: Query) -> dict[str, Any]:
        """Return the request body for a search; it asks the provider not to store the request."""
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
        """Add the answer, the cited pages, and then the pages without citations.

        Returns:
            None: OpenAI answers a search in one response, so that there is no next request.
        """
        if data.get("error"):
            raise ToolExecutionError(_ERROR.format(data["error"].get("message")))
        findings.is_cut = data.get("status") == "incomplete"
        sources: list[str | None] = []
        for item in _list_in(data, "output"):
            if item["type"] == "web_search_call":
                action = _object_in(item, "action")
                sources += [source.get("url") for source in _list_in(action, "sources")]
            elif item["type"] == "message":
                for part in item["content"]:
                    if part["type"] == "output_text":
                        findings.answer += part["text"]
                        _collect_citations(part, findings)
        # The sources include cited pages; adding a page again changes nothing.
        for url in sources:
            findings.add(url)
        return None


def _collect_citations(part: Any, findings: Findings) -> None:
    """Add the pages that a text cites. The snippet is the text before the citation on its line."""
    text: str = part["text"]
    for annotation in _list_in(part, "annotations"):
        if annotation.get("type") == "url_citation":
            start = annotation.get("start_index") or 0
            line_start = text.rfind("\n", 0, start) + 1
            line_before = text[line_start:start]
            findings.add(annotation.get("url"), annotation.get("title"), line_before.strip(" (-*"))


class Anthropic:
    """Anthropic's Messages API with the tool ``web_search``."""

    root = "https://api.anthropic.com"
    path = "v1/messages"

    def __init__(self) -> None:
        # The last request, to which read() appends the answer if the model asks to continue.
        self._last_body: dict[str, Any] = {}

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers with the API key and the API version."""
        return {"x-api-key": key, "anthropic-version": "2023-06-01"}

    def body(self, query: Query) -> dict[str, Any]:
        """Return the request body for a search, and store the body for :meth:`read`."""
        tool: dict[str, Any] = {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": _MAX_SEARCHES,
        }
        if query.domains:
            tool["allowed_domains"] = list(query.domains)
        self._last_body = {
            "model": query.model,
            "max_tokens": _MAX_TOKENS,
            "messages": [{"role": "user", "content": query.prompt}],
            "tools": [tool],
        }
        return self._last_body

    def read(self, data: Any, findings: Findings) -> dict[str, Any] | None:
        """Add the answer, and the found pages with cited passages as snippets.

        Returns:
            The body of the next request, if the model asks to continue; else None.
        """
        error_code = ""
        for block in _list_in(data, "content"):
            if block["type"] == "web_search_tool_result":
                if isinstance(block["content"], dict):  # an error; results are a list
                    error_code = _object_in(block, "content").get("error_code", "unknown")
                    continue
                for page in _list_in(block, "content"):
                    findings.add(page.get("url"), page.get("title"))
            elif block["type"] == "text":
                findings.answer += block["text"]
                for citation in _list_in(block, "citations"):
                    findings.add(
                        citation.get("url"), citation.get("title"), citation.get("cited_text")
                    )
        if error_code and not findings.results:
            raise ToolExecutionError(_ERROR.format(error_code))
        findings.is_cut = data.get("stop_reason") == "max_tokens"
        if data.get("stop_reason") == "pause_turn":  # the model asks to continue
            turn = {"role": "assistant", "content": data["content"]}
            self._last_body = {**self._last_body, "messages": [*self._last_body["messages"], turn]}
            return self._last_body
        return None


class Google:
    """Searches the web with Gemini's ``generateContent`` and its tool ``googleSearch``."""

    root = "https://generativelanguage.googleapis.com"
    path = "v1beta/models/{model}:generateContent"

    def headers(self, key: str) -> dict[str, str]:
        """Return the header with the API key."""
        return {"x-goog-api-key": key}

    def body(self, query: Query) -> dict[str, Any]:
        """Return the request body for a search."""
        return {
            "contents": [{"role": "user", "parts": [{"text": query.prompt}]}],
            "tools": [{"googleSearch": {}}],
        }

    def read(self, data: Any, findings: Findings) -> dict[str, Any] | None:
        """Add the answer and its sources to ``findings``.

        Gemini quotes no passages of a page. The snippets of a page are therefore those sentences of
        the answer that cite the page.

        Returns:
            None: Gemini answers a search in one response, so that there is no next request.
        """
        candidates = _list_in(data, "candidates")
        if not candidates:
            reason = _object_in(data, "promptFeedback").get("blockReason", "no answer")
            raise ToolExecutionError(_ERROR.format(reason))
        candidate = candidates[0]
        parts = _object_in(candidate, "content").get("parts") or ()
        findings.answer += "".join(p.get("text") or "" for p in parts if not p.get("thought"))
        findings.is_cut = candidate.get("finishReason", "STOP") != "STOP"
        grounding = _object_in(candidate, "groundingMetadata")
        pages = [_object_in(chunk, "web") for chunk in _list_in(grounding, "groundingChunks")]
        for page in pages:
            findings.add(page.get("uri"), page.get("title"))
        for support in _list_in(grounding, "groundingSupports"):
            supported_text = _object_in(support, "segment").get("text")
            for index in _list_in(support, "groundingChunkIndices"):
                if 0 <= index < len(pages):
                    findings.add(pages[index].get("uri"), None, supported_text)
        return None


class SearXNG:
    """The JSON API of a SearXNG server."""

    def query(self, query: Query) -> str:
        """Return the path and query string of a search's URL."""
        sites = " OR ".join(f"site:{name}" for name in query.domains)
        fields = {"q": f"{query.text} {sites}".strip(), "format": "json"}
        if query.language:
            fields["language"] = query.language
        return f"search?{urlencode(fields)}"

    def read(self, data: Any, findings: Findings) -> None:
        """Add the found pages, and the direct answers of the search engines behind SearXNG."""
        answers = [
            item if isinstance(item, str) else item.get("answer", "")
            for item in _list_in(data, "answers")
        ]
        findings.answer = "\n".join(filter(None, answers))
        for page in _list_in(data, "results"):
            findings.add(page.get("url"), page.get("title"), page.get("content"))
