"""Documents: a body of paragraphs and tables with indexes in UTF-16 units, and batches of edits."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field, replace
from typing import Any

from support.google.calls import ApiError, Call, answers_of_requests, serves
from support.google.drive import NATIVE, DriveService

KIND = f"{NATIVE}document"


def units(text: str) -> int:
    """The length of a text as the vendor counts it."""
    return len(text.encode("utf-16-le")) // 2


@dataclass
class Char:
    """One character with its style; two units where it is outside of the basic plane."""

    text: str
    style: dict[str, Any] = field(default_factory=dict)
    suggested: bool = False  # by somebody who may only suggest


@dataclass
class Paragraph:
    chars: list[Char]
    style: dict[str, Any] = field(default_factory=lambda: {"namedStyleType": "NORMAL_TEXT"})
    bullet: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return "".join(char.text for char in self.chars) + "\n"


@dataclass
class Table:
    rows: list[list[list[Any]]]  # cells hold blocks


@dataclass
class Document:
    id: str
    title: str
    blocks: list[Any] = field(default_factory=lambda: [Paragraph([])])
    lists: dict[str, Any] = field(default_factory=dict)
    revision: int = 1


class DocsService:
    """All documents; their files are in the drive."""

    def __init__(self, drive: DriveService) -> None:
        self.documents: dict[str, Document] = {}
        self.drive = drive
        drive.exporters["document"] = lambda key, kind: self.text(key).encode()
        drive.creators["document"] = self._created
        drive.deleters["document"] = lambda key: self.documents.pop(key, None)

    def _created(self, key: str, title: str, media: bytes | None, kind: str | None) -> None:
        document = self.documents[key] = Document(key, title)
        if media:
            document.blocks = [
                Paragraph([Char(c) for c in line]) for line in media.decode().split("\n")
            ]

    def text(self, key: str) -> str:
        """The plain text of a document."""
        lines: list[str] = []

        def walk(blocks: list[Any]) -> None:
            for block in blocks:
                if isinstance(block, Paragraph):
                    lines.append(block.text)
                else:
                    for row in block.rows:
                        for cell in row:
                            walk(cell)

        walk(self.documents[key].blocks)
        return "".join(lines)

    @serves("docs.documents.create")
    def create(self, call: Call) -> Any:
        title = call.body.get("title", "Untitled document")
        file = self.drive.add(title, KIND, owner=call.user)
        self.documents[file.id] = Document(file.id, title)
        return self._resource(self.documents[file.id])

    @serves("docs.documents.get")
    def get(self, call: Call) -> Any:
        document = self._document(call["documentId"])
        if call.get("suggestionsViewMode") == "PREVIEW_WITHOUT_SUGGESTIONS":
            document = replace(document, blocks=_without_suggestions(document.blocks))
        return self._resource(document)

    @serves("docs.documents.batchUpdate")
    def batch(self, call: Call) -> Any:
        old = self._document(call["documentId"])
        control = call.body.get("writeControl", {})
        if control.get("requiredRevisionId") not in (None, str(old.revision)):
            raise ApiError(
                400,
                "The required revision ID does not match the latest revision.",
                "failedPrecondition",
            )
        document = replace(old, blocks=_copied(old.blocks), lists=dict(old.lists))
        replies = answers_of_requests(self, document, call.body.get("requests", []))
        document.revision += 1
        self.documents[old.id] = document
        self.drive.touch(old.id)
        return {
            "documentId": old.id,
            "replies": replies,
            "writeControl": {"requiredRevisionId": str(document.revision)},
        }

    def _document(self, key: str) -> Document:
        if key not in self.documents:
            raise ApiError(404, "Requested entity was not found.", "notFound")
        return self.documents[key]

    # -- places -------------------------------------------------------------------------

    def _places(self, document: Document) -> list[tuple[int, int, list[Any], int]]:
        """Every paragraph: start, end, the list it is in, its position there."""
        found: list[tuple[int, int, list[Any], int]] = []

        def walk(blocks: list[Any], index: int) -> int:
            for position, block in enumerate(blocks):
                if isinstance(block, Paragraph):
                    end = index + units(block.text)
                    found.append((index, end, blocks, position))
                    index = end
                else:
                    index += 1
                    for row in block.rows:
                        index += 1
                        for cell in row:
                            index = walk(cell, index + 1)
                    index += 1
            return index

        walk(document.blocks, 1)
        return found

    def _at(self, document: Document, index: int) -> tuple[Paragraph, int, list[Any], int]:
        """The paragraph at an index, the character there, and where the paragraph is."""
        for start, end, blocks, position in self._places(document):
            if start <= index < end:
                paragraph = blocks[position]
                offset = start
                for number, char in enumerate(paragraph.chars):
                    if offset == index:
                        return paragraph, number, blocks, position
                    if offset > index:
                        raise ApiError(400, f"The index {index} is inside of a surrogate pair")
                    offset += units(char.text)
                if offset != index:
                    raise ApiError(400, f"The index {index} is inside of a surrogate pair")
                return paragraph, len(paragraph.chars), blocks, position
        raise ApiError(
            400,
            f"The insertion index must be inside the bounds of an existing paragraph. You can still create new paragraphs by inserting newlines. Index: {index}",
        )

    def _location(self, document: Document, body: dict[str, Any]) -> int:
        if "location" in body:
            return body["location"]["index"]
        return self._places(document)[-1][1] - 1

    def _paragraphs(self, document: Document, span: dict[str, Any]) -> list[tuple[int, Paragraph]]:
        start, end = span["startIndex"], span["endIndex"]
        last = self._places(document)[-1][1]
        if not 1 <= start < end <= last:
            raise ApiError(
                400,
                f"Index {end} must be less than the end index of the referenced segment, {last}.",
            )
        return [
            (a, blocks[p]) for a, b, blocks, p in self._places(document) if a < end and b > start
        ]

    # -- requests -----------------------------------------------------------------------

    def _do_insertText(self, document: Document, body: dict[str, Any]) -> None:
        text = body.get("text", "")
        if not text:
            raise ApiError(400, "The text to insert must not be empty")
        text = re.sub(r"[\x00-\x08\x0c-\x1f\ue000-\uf8ff]", "", text)
        paragraph, at, blocks, position = self._at(document, self._location(document, body))
        near = paragraph.chars[at - 1] if at else (paragraph.chars[0] if paragraph.chars else None)
        style = near.style if near else {}
        first, *more = text.split("\n")
        tail = paragraph.chars[at:]
        paragraph.chars[at:] = [Char(c, dict(style)) for c in first]
        rest = [
            Paragraph(
                [Char(c, dict(style)) for c in line],
                dict(paragraph.style),
                copy.deepcopy(paragraph.bullet),
            )
            for line in more
        ]
        (rest[-1] if rest else paragraph).chars += tail
        blocks[position + 1 : position + 1] = rest

    def _do_deleteContentRange(self, document: Document, body: dict[str, Any]) -> None:
        start, end = body["range"]["startIndex"], body["range"]["endIndex"]
        places = self._places(document)
        if not 1 <= start < end:
            raise ApiError(400, "The range should not be empty.")
        if end >= places[-1][1]:
            raise ApiError(
                400, "The range cannot include the newline character at the end of the segment."
            )
        inside = [(a, b, blocks, p) for a, b, blocks, p in places if a < end and b > start]
        top = [item for item in inside if item[2] is document.blocks]
        if any(item[2] is not inside[0][2] for item in inside):
            # whole tables between top-level paragraphs may go
            if not top or not (
                inside[0][2] is document.blocks and inside[-1][2] is document.blocks
            ):
                raise ApiError(400, "The range crosses the border of a table cell.")
            inside = top
        blocks = inside[0][2]
        first, last = inside[0][3], inside[-1][3]
        keep = self._cut(blocks[first], inside[0][0], start, end)
        ends_at_newline = end == inside[-1][1]
        if first != last or ends_at_newline:
            tail_block = last
            after: list[Char] = []
            style, bullet = blocks[last].style, blocks[last].bullet
            if ends_at_newline:
                tail_block = last + 1
                if tail_block >= len(blocks) or not isinstance(blocks[tail_block], Paragraph):
                    if keep or start != inside[0][0]:
                        raise ApiError(
                            400,
                            "The newline before a table or at a segment's end cannot be deleted.",
                        )
                    if tail_block >= len(blocks):
                        raise ApiError(400, "The last newline of a segment cannot be deleted.")
                    del blocks[first : last + 1]
                    return
                after = blocks[tail_block].chars
                style, bullet = blocks[tail_block].style, blocks[tail_block].bullet
            else:
                after = self._cut(blocks[last], inside[-1][0], start, end)
            if not keep:
                blocks[first].style, blocks[first].bullet = style, bullet
            keep = keep + after
            del blocks[first + 1 : tail_block + 1]
        blocks[first].chars = keep

    def _cut(self, paragraph: Paragraph, offset: int, start: int, end: int) -> list[Char]:
        kept: list[Char] = []
        for char in paragraph.chars:
            size = units(char.text)
            if size == 2 and (start == offset + 1 or end == offset + 1):
                raise ApiError(400, "The range cuts a surrogate pair")
            if not start <= offset < end:
                kept.append(char)
            offset += size
        return kept

    def _do_insertTable(self, document: Document, body: dict[str, Any]) -> None:
        paragraph, at, blocks, position = self._at(document, self._location(document, body))
        if body["rows"] < 1 or body["columns"] < 1:
            raise ApiError(400, "rows and columns must be positive")
        table = Table(
            [[[Paragraph([])] for _ in range(body["columns"])] for _ in range(body["rows"])]
        )
        tail = Paragraph(
            paragraph.chars[at:], dict(paragraph.style), copy.deepcopy(paragraph.bullet)
        )
        del paragraph.chars[at:]
        blocks[position + 1 : position + 1] = [table, tail]

    def _do_updateTextStyle(self, document: Document, body: dict[str, Any]) -> None:
        span, style = body["range"], body.get("textStyle", {})
        fields = _mask(body)
        for offset, paragraph in self._paragraphs(document, span):
            place = offset
            for number, char in enumerate(paragraph.chars):
                if span["startIndex"] <= place < span["endIndex"]:
                    changed = dict(char.style)
                    for name in fields if fields != ["*"] else {*char.style, *style}:
                        changed.pop(name, None)
                        if style.get(name) not in (None, False):
                            changed[name] = style[name]
                    paragraph.chars[number] = Char(char.text, changed)
                place += units(char.text)

    def _do_updateParagraphStyle(self, document: Document, body: dict[str, Any]) -> None:
        style = body.get("paragraphStyle", {})
        for _, paragraph in self._paragraphs(document, body["range"]):
            for name in _mask(body):
                paragraph.style.pop(name, None)
                if name in style:
                    paragraph.style[name] = style[name]
            paragraph.style.setdefault("namedStyleType", "NORMAL_TEXT")

    def _do_createParagraphBullets(self, document: Document, body: dict[str, Any]) -> None:
        key = f"kix.list{len(document.lists) + 1}"
        glyph = (
            {"glyphType": "DECIMAL"}
            if body["bulletPreset"].startswith("NUMBERED")
            else {"glyphSymbol": "●"}
        )
        document.lists[key] = {"listProperties": {"nestingLevels": [glyph] * 9}}
        for _, paragraph in self._paragraphs(document, body["range"]):
            tabs = 0
            while paragraph.chars and paragraph.chars[0].text == "\t":
                paragraph.chars.pop(0)
                tabs += 1
            paragraph.bullet = {"listId": key} | ({"nestingLevel": tabs} if tabs else {})

    def _do_deleteParagraphBullets(self, document: Document, body: dict[str, Any]) -> None:
        for _, paragraph in self._paragraphs(document, body["range"]):
            paragraph.bullet = None

    def _do_replaceAllText(self, document: Document, body: dict[str, Any]) -> Any:
        contains, new = body["containsText"], body.get("replaceText", "")
        if not contains.get("text"):
            raise ApiError(400, "The text to find must not be empty")
        flags = 0 if contains.get("matchCase") else re.IGNORECASE
        pattern = re.compile(re.escape(contains["text"]), flags)
        count = 0
        for _, _, blocks, position in reversed(self._places(document)):
            paragraph = blocks[position]
            text = "".join(char.text for char in paragraph.chars)
            for match in reversed(list(pattern.finditer(text))):
                style = paragraph.chars[match.start()].style
                paragraph.chars[match.start() : match.end()] = [Char(c, dict(style)) for c in new]
                count += 1
        return {"replaceAllText": {"occurrencesChanged": count} if count else {}}

    # -- resources ----------------------------------------------------------------------

    def _resource(self, document: Document) -> dict[str, Any]:
        content: list[dict[str, Any]] = [
            {"endIndex": 1, "sectionBreak": {"sectionStyle": {"sectionType": "CONTINUOUS"}}}
        ]
        self._content(document.blocks, 1, content)
        return {
            "documentId": document.id,
            "title": document.title,
            "revisionId": str(document.revision),
            "body": {"content": content},
            "lists": document.lists,
        }

    def _content(self, blocks: list[Any], index: int, out: list[dict[str, Any]]) -> int:
        for block in blocks:
            start = index
            if isinstance(block, Paragraph):
                elements: list[dict[str, Any]] = []
                runs: list[tuple[str, dict[str, Any]]] = []
                for char in [
                    *block.chars,
                    Char("\n", block.chars[-1].style if block.chars else {}),
                ]:
                    if runs and runs[-1][1] == char.style:
                        runs[-1] = (runs[-1][0] + char.text, char.style)
                    else:
                        runs.append((char.text, char.style))
                for text, style in runs:
                    end = index + units(text)
                    elements.append(
                        {
                            "startIndex": index,
                            "endIndex": end,
                            "textRun": {"content": text, "textStyle": style},
                        }
                    )
                    index = end
                paragraph: dict[str, Any] = {"elements": elements, "paragraphStyle": block.style}
                if block.bullet:
                    paragraph["bullet"] = block.bullet
                out.append({"startIndex": start, "endIndex": index, "paragraph": paragraph})
            else:
                index += 1
                rows: list[dict[str, Any]] = []
                for row in block.rows:
                    row_start = index
                    index += 1
                    cells: list[dict[str, Any]] = []
                    for cell in row:
                        cell_start = index
                        inner: list[dict[str, Any]] = []
                        index = self._content(cell, index + 1, inner)
                        cells.append(
                            {"startIndex": cell_start, "endIndex": index, "content": inner}
                        )
                    rows.append({"startIndex": row_start, "endIndex": index, "tableCells": cells})
                index += 1
                table = {"rows": len(block.rows), "columns": len(block.rows[0]), "tableRows": rows}
                out.append({"startIndex": start, "endIndex": index, "table": table})
        return index


def _without_suggestions(blocks: list[Any]) -> list[Any]:
    return [
        replace(block, chars=[char for char in block.chars if not char.suggested])
        if isinstance(block, Paragraph)
        else Table([[_without_suggestions(cell) for cell in row] for row in block.rows])
        for block in blocks
    ]


def _copied(blocks: list[Any]) -> list[Any]:
    """Blocks that can be changed; a character never is, but replaced."""
    return [
        Paragraph(list(block.chars), dict(block.style), block.bullet)
        if isinstance(block, Paragraph)
        else Table([[_copied(cell) for cell in row] for row in block.rows])
        for block in blocks
    ]


def _mask(body: dict[str, Any]) -> list[str]:
    if not body.get("fields"):
        raise ApiError(
            400, "At least one field must be listed in 'fields'. (Use '*' to indicate all fields.)"
        )
    return body["fields"].split(",")
