"""``Docs``: documents that a script reads and writes as Markdown."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, TypedDict
from weakref import WeakValueDictionary

from delf import CallContext, action
from delf.errors import ToolRefusedError
from delf.network.retries import pause
from delf.protocols.connection import Allowed, ProposedCall
from delf.types import Trust
from delf_docs.blocks import blocks_of, utf16_length
from delf_docs.reading import markdown_of, paragraphs, plain_text
from delf_docs.writing import insert_blocks, text_style
from delf_google.connection import GoogleConnection
from delf_google.errors import GoogleError, LostAnswerError
from delf_google.files import file_id
from delf_google.requests import Request, segment
from delf_google.transport import RETRIES

_DOCUMENTS: Final = "v1/documents"
# Actions that people approve for one revision of the document only.
_REVISION_BOUND_ACTIONS: Final = ("replace", "rewrite", "format", "delete")
_MAX_DIFF_LENGTH: Final = 200_000
# The maximum number of characters of a document that a script gets.
_MAX_TEXT_LENGTH: Final = 2_000_000
_WITHOUT_SUGGESTIONS: Final = "PREVIEW_WITHOUT_SUGGESTIONS"
# The view with suggestions inline; change requests count indexes in this view.
_WITH_SUGGESTIONS: Final = "SUGGESTIONS_INLINE"
_DRIVE: Final = "https://www.googleapis.com/"


@dataclass(frozen=True, slots=True)
class InsertionPoint:
    """The index at which blocks are inserted.

    Args:
        index: The index, at the start of a paragraph that is empty after the first requests.
        first_requests: The requests that must precede the insertion.
    """

    index: int
    first_requests: list[dict[str, Any]]


class DocumentText(TypedDict):
    """A document with its text; ``notice`` is set if the text was truncated."""

    id: str
    title: str
    link: str
    markdown: str
    notice: str | None


class DocumentInfo(TypedDict):
    """The id, title and link of a document that was created or changed."""

    id: str
    title: str
    link: str


class Replaced(TypedDict):
    """The number of occurrences that were replaced."""

    changed: int


@dataclass(frozen=True, slots=True)
class Edit:
    """A document before its change, and the response of the Docs API to the change."""

    document: Mapping[str, Any]
    answer: Mapping[str, Any]


# The trust level of each field of a document: strangers may have written title and text.
_TRUST: Final[Mapping[str, Trust]] = {
    **dict.fromkeys(("id", "link", "notice"), "own"),
    "*": "outside",
}


class Docs(GoogleConnection):
    """Google documents, named by id or URL, and read and written as Markdown."""

    root = "https://docs.googleapis.com/"
    scopes: ClassVar = {
        "read": "documents.readonly",
        "create": "documents",
        "editing": "documents",
        "format": "documents",
        "removing": "drive",
    }
    scope_inclusions: ClassVar = {"documents": frozenset({"documents.readonly"})}
    summary = "Google Docs: documents as Markdown."

    @action(effect="read", trust=_TRUST)
    async def read(self, document: str) -> DocumentText:
        """A document as Markdown: headings, lists, tables, links, emphasis."""
        view = await self._view(document, _WITHOUT_SUGGESTIONS)
        text = await asyncio.to_thread(markdown_of, view)
        notice = None
        if len(text) > _MAX_TEXT_LENGTH:
            notice = (
                f"the text has {len(text):,} characters, of which these are the first "
                f"{_MAX_TEXT_LENGTH:,}"
            )
            text = text[:_MAX_TEXT_LENGTH]
        return DocumentText(**_info(view), markdown=text, notice=notice)

    @action("create", effect="write", trust=_TRUST, sinks=[])
    async def create(self, title: str, markdown: str = "") -> DocumentInfo:
        """A new document at the top of the drive, with this text."""
        blocks = await asyncio.to_thread(blocks_of, markdown)
        created = await self.transport.json(
            Request("make a document", "POST", _DOCUMENTS, body={"title": title}, send_once=True)
        )
        if blocks:
            try:
                await self._change("write a document", created, insert_blocks(blocks, 1))
            except GoogleError as error:
                is_lost = isinstance(error, LostAnswerError)
                content = "perhaps with its text" if is_lost else "and is empty"
                raise type(error)(
                    f"{error.message}; the document {created['documentId']} was made, {content}",
                    status=error.status,
                    reason=error.reason,
                    hint=error.hint,
                ) from None
        return _info(created)

    @action("editing", effect="write", trust=_TRUST, sinks=["document"])
    async def append(self, document: str, markdown: str) -> DocumentInfo:
        """Write Markdown at the end of a document."""
        return await self._write(document, markdown, _point_in_new_last_paragraph)

    @action("editing", effect="write", trust="own", sinks=["document"])
    async def replace(
        self,
        document: str,
        find: str,
        replacement: str,
        match_case: bool = True,
        context: CallContext | None = None,
    ) -> Replaced:
        """Replace a text everywhere in a document; the new plain text has the old text's style."""
        if not find:
            raise ToolRefusedError("find is empty")
        contains = {"text": find, "matchCase": match_case}
        request = {"replaceAllText": {"containsText": contains, "replaceText": replacement}}
        edit = await self._edit("replace text", document, lambda _: [request], context)
        replies: list[dict[str, Any]] = edit.answer.get("replies") or [{}]
        reply: dict[str, Any] = replies[0].get("replaceAllText") or {}
        return Replaced(changed=int(reply.get("occurrencesChanged") or 0))

    @action("editing", effect="write", trust=_TRUST, sinks=["document"])
    async def rewrite(
        self, document: str, markdown: str, context: CallContext | None = None
    ) -> DocumentInfo:
        """Replace the whole text of a document by Markdown."""
        return await self._write(document, markdown, _point_replacing_body, context)

    @action("format", effect="write", trust="own", sinks=["document", "link"])
    async def format(
        self,
        document: str,
        find: str,
        bold: bool | None = None,
        italic: bool | None = None,
        underline: bool | None = None,
        strikethrough: bool | None = None,
        link: str | None = None,
        heading: int | None = None,
        context: CallContext | None = None,
    ) -> Replaced:
        """Format every occurrence of a text; `heading` (1 to 6, 0 for none) makes its paragraph a
        heading.
        """  # noqa: D205 - the model reads the whole paragraph
        switches = {
            "bold": bold,
            "italic": italic,
            "underline": underline,
            "strikethrough": strikethrough,
        }
        styles: dict[str, Any] = {
            name: value for name, value in switches.items() if value is not None
        }
        if link == "":
            styles["link"] = None  # removes the link
        elif link is not None:
            styles |= text_style("link", link)
        if not find or (not styles and heading is None):
            raise ToolRefusedError("give the text to find, and its new look")
        if heading is not None and not 0 <= heading <= 6:
            raise ToolRefusedError("heading is from 1 to 6, or 0 for none")
        count = 0

        def requests_for(current: Mapping[str, Any]) -> list[dict[str, Any]]:
            nonlocal count
            spans = list(_occurrences(current, find))
            count = len(spans)
            return _style_requests(spans, styles, heading)

        await self._edit("format text", document, requests_for, context)
        if not count:
            raise ToolRefusedError(f"{find[:200]!r} is not in the document")
        return Replaced(changed=count)

    @action("removing", effect="write", trust="own", sinks=["document"])
    async def trash(self, document: str) -> None:
        """Move a document to the trash, from which Google deletes it after 30 days."""
        await self._call_drive("trash a document", "PATCH", document, {"trashed": True})

    @action("removing", effect="irreversible", trust="own", sinks=["document"])
    async def delete(self, document: str) -> None:
        """Delete a document forever; `trash` can be undone."""
        await self._call_drive("delete a document", "DELETE", document, None)

    async def preview(self, call: ProposedCall) -> Allowed | None:
        """Preview the document and the paragraphs that a call would change.

        The ``basis`` of the preview is the document's revision, if the action changes present text,
        as ``rewrite`` does. An approval then counts only while the document has this revision.
        """
        arguments = call.arguments
        if not isinstance(arguments.get("document"), str):
            return None
        document = await self._get(arguments["document"])
        info = _info(document)
        lines = [f"document {info['title']!r}, {info['link']}"]
        if call.action not in _REVISION_BOUND_ACTIONS:
            return Allowed(preview="\n".join(lines))
        lines += await asyncio.to_thread(_changed_lines, call, document)
        return Allowed(preview="\n".join(lines), basis=_revision(document))

    # -- parts --------------------------------------------------------------------------

    async def _get(self, document: str) -> dict[str, Any]:
        return await self._view(document, _WITH_SUGGESTIONS)

    async def _view(self, document: str, view: str) -> dict[str, Any]:
        return await self.transport.json(
            Request(
                "read a document",
                "GET",
                f"{_DOCUMENTS}/{segment(file_id(document))}",
                query={"suggestionsViewMode": view},
            )
        )

    async def _write(
        self,
        document: str,
        markdown: str,
        point_in: Callable[[Mapping[str, Any]], InsertionPoint],
        context: CallContext | None = None,
    ) -> DocumentInfo:
        """Insert Markdown at the point that ``point_in`` returns for the current document."""
        blocks = await asyncio.to_thread(blocks_of, markdown)
        if not blocks:
            raise ToolRefusedError("there is nothing to write")

        def requests_for(current: Mapping[str, Any]) -> list[dict[str, Any]]:
            """Return the requests that insert the Markdown's blocks into the current document."""
            point = point_in(current)
            return [*point.first_requests, *insert_blocks(blocks, point.index)]

        edit = await self._edit("write a document", document, requests_for, context)
        return _info(edit.document)

    @cached_property
    def _document_locks(self) -> WeakValueDictionary[str, asyncio.Lock]:
        return WeakValueDictionary()

    async def _edit(
        self,
        what: str,
        document: str,
        requests_for: Callable[[Mapping[str, Any]], list[dict[str, Any]]],
        context: CallContext | None = None,
    ) -> Edit:
        """Change a document by requests that ``requests_for`` computes from its current content.

        Changes of this process are serialised. If another program changes the document meanwhile,
        the requests' indexes are wrong, so the document is read again.
        """
        async with self._document_locks.setdefault(file_id(document), asyncio.Lock()):
            return await self._edit_current_revision(what, document, requests_for, context)

    async def _edit_current_revision(
        self,
        what: str,
        document: str,
        requests_for: Callable[[Mapping[str, Any]], list[dict[str, Any]]],
        context: CallContext | None,
    ) -> Edit:
        """Edit the document's current revision; retry if others change the document meanwhile."""
        # A person may have approved the edit of one revision only.
        approved_revision = None if context is None else context.basis
        for attempt in range(RETRIES + 1):
            current = await self._get(document)
            if approved_revision not in (None, _revision(current)):
                raise ToolRefusedError(
                    "others have changed the document since a person saw it, so nothing was "
                    "written; call it again to ask again"
                )
            requests = requests_for(current)
            if not requests:
                return Edit(current, {})
            try:
                return Edit(current, await self._change(what, current, requests))
            except LostAnswerError:  # do not retry: the change may have been made
                raise
            except GoogleError as error:
                # Skip the connection's name, which begins the message and may contain the word
                # "revision".
                reason = error.message.removeprefix(self.name)
                is_outdated = error.status == 400 and "revision" in reason
                if not is_outdated:
                    raise
                # pause() is meant for outages. An edit by a person is over sooner, so wait a tenth
                # of that.
                await self.transport.sleep(pause(attempt) / 10)
        raise GoogleError(
            f"{self.name}: {what}: others keep changing the document; nothing was written",
            hint="try again later",
        )

    async def _change(
        self, what: str, current: Mapping[str, Any], requests: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Send change requests, which Google refuses if the document has a newer revision.

        A retry therefore cannot make the change twice. If the revision is unknown, the requests are
        sent only once.
        """
        revision = current.get("revisionId")
        body: dict[str, Any] = {"requests": requests}
        if revision:
            body["writeControl"] = {"requiredRevisionId": revision}
        return await self.transport.json(
            Request(
                what,
                "POST",
                f"{_DOCUMENTS}/{segment(str(current['documentId']))}:batchUpdate",
                body=body,
                send_once=not revision,
            )
        )

    async def _call_drive(
        self, what: str, method: Literal["PATCH", "DELETE"], document: str, body: Any
    ) -> None:
        """Send a request to the API of Drive; ``what`` describes the request in messages."""
        # The transport puts the setting base_url before the path, in place of Google's address.
        root = "" if self.settings.base_url else _DRIVE
        await self.transport.send(
            Request(
                what,
                method,
                f"{root}drive/v3/files/{segment(file_id(document))}",
                query={"supportsAllDrives": True, "fields": "id" if body else None},
                body=body,
            )
        )


def _revision(document: Mapping[str, Any]) -> str:
    return str(document.get("revisionId", ""))


def _changed_lines(call: ProposedCall, document: Mapping[str, Any]) -> list[str]:
    """Return lines about the text that a call would change in a document."""
    if call.action == "rewrite":
        return _difference(document, str(call.arguments["markdown"]))
    if call.action in ("replace", "format"):
        # The action ``format`` always matches case.
        match_case = call.action == "format" or bool(call.arguments.get("match_case", True))
        return _paragraphs_with(document, str(call.arguments["find"]), match_case=match_case)
    return []


def _difference(document: Mapping[str, Any], markdown: str) -> list[str]:
    """Return a unified diff from a document's text to a new text.

    If the two texts together are too long to compare, return a summary.
    """
    current_text = markdown_of(document)
    old_length = len(current_text)
    new_length = len(markdown)
    if old_length + new_length > _MAX_DIFF_LENGTH:
        return [f"its text of {old_length:,} characters is replaced by a text of {new_length:,}"]
    return list(
        difflib.unified_diff(
            current_text.splitlines(),
            markdown.splitlines(),
            fromfile="now",
            tofile="after the change",
            lineterm="",
        )
    )


def _paragraphs_with(document: Mapping[str, Any], text: str, *, match_case: bool) -> list[str]:
    """Return lines: first how often a text occurs, then each paragraph that contains the text."""
    searched_text = text if match_case else text.casefold()
    lines: list[str] = []
    count = 0
    for element in paragraphs(document):
        paragraph = plain_text(element).rstrip("\n")
        compared_text = paragraph if match_case else paragraph.casefold()
        occurrences = compared_text.count(searched_text) if searched_text else 0
        count += occurrences
        if occurrences:
            lines.append(f"- {paragraph}")
    if lines:
        return [f"{count} times in {len(lines)} paragraphs:", *lines]
    return ["it is not there"]


def _info(document: Mapping[str, Any]) -> DocumentInfo:
    key = str(document["documentId"])
    link = f"https://docs.google.com/document/d/{key}/edit"
    return DocumentInfo(id=key, title=str(document.get("title", "")), link=link)


def _point_in_new_last_paragraph(document: Mapping[str, Any]) -> InsertionPoint:
    """Return the insertion point in the last paragraph.

    If the last paragraph has text, the point is in a new paragraph after it.
    """
    last = list(paragraphs(document))[-1]
    end = int(last["endIndex"]) - 1  # before the line break that ends every document
    if not plain_text(last).strip("\n"):
        return InsertionPoint(end, first_requests=[])
    line_break = {"insertText": {"location": {"index": end}, "text": "\n"}}
    return InsertionPoint(end + 1, first_requests=[line_break])


def _point_replacing_body(document: Mapping[str, Any]) -> InsertionPoint:
    """Return the insertion point at the start, with the request that first deletes the body."""
    content: list[Mapping[str, Any]] = document["body"]["content"]
    end = int(content[-1]["endIndex"]) - 1  # before the line break that ends every document
    if end <= 1:
        return InsertionPoint(1, first_requests=[])
    deletion = {"deleteContentRange": {"range": {"startIndex": 1, "endIndex": end}}}
    return InsertionPoint(1, first_requests=[deletion])


def _style_requests(
    spans: Sequence[tuple[int, int]], styles: Mapping[str, Any], heading: int | None
) -> list[dict[str, Any]]:
    """Return the API requests that set the style of some spans of text.

    Args:
        spans: The start and end indexes of the spans.
        styles: The text styles by name; None resets a style.
        heading: The heading level of the spans' paragraphs, 0 for normal text; None for no change.
    """
    requests: list[dict[str, Any]] = []
    set_styles = {name: value for name, value in styles.items() if value is not None}
    for start, end in spans:
        span = {"startIndex": start, "endIndex": end}
        if styles:
            body = {"range": span, "textStyle": set_styles, "fields": ",".join(styles)}
            requests.append({"updateTextStyle": body})
        if heading is not None:
            style = {"namedStyleType": f"HEADING_{heading}" if heading else "NORMAL_TEXT"}
            paragraph = {"range": span, "paragraphStyle": style, "fields": "namedStyleType"}
            requests.append({"updateParagraphStyle": paragraph})
    return requests


def _occurrences(document: Mapping[str, Any], text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end index, in UTF-16 code units, of each occurrence of a text."""
    for element in paragraphs(document):
        paragraph = plain_text(element)
        start = int(element.get("startIndex") or 1)
        position = paragraph.find(text)
        while position >= 0:
            begin = start + utf16_length(paragraph[:position])
            yield begin, begin + utf16_length(text)
            position = paragraph.find(text, position + len(text))
