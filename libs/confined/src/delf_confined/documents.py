"""Text extraction from untrusted PDF and .docx documents. Call it in a confined child."""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, NamedTuple, cast
from unicodedata import category
from xml.etree import ElementTree as ET

from delf.errors import ToolExecutionError
from delf.notes import note
from delf_confined.office import is_locked, usual_form

_WORD: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BODY: Final = "word/document.xml"
_MAIN: Final = "/relationships/officeDocument"
_RELATIONSHIP: Final = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_SYMBOL: Final = re.compile("[0-9A-Fa-f]{4}")
_OTHER_FORM: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_MARKS: Final = {
    f"{_WORD}tab": "\t",
    f"{_WORD}ptab": "\t",
    f"{_WORD}br": "\n",
    f"{_WORD}cr": "\n",
    f"{_WORD}noBreakHyphen": "-",
}
_NO_TEXT: Final = (_OTHER_FORM, *(f"{_WORD}{tag}" for tag in ("p", "tabs", "del", "moveFrom")))
"""Elements of a paragraph without text of its own: tab stops, deletions, references."""
_NOTES: Final = ("footnotes", "endnotes", "comments")
_DAMAGE: Final = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OSError)
"""Exceptions of pypdf for damaged documents, besides its own error classes."""
_GLYPH: Final = re.compile(
    r"/(?:[A-Za-z]{1,2}|uni|cid|glyph|index)[0-9A-Fa-f]{2,5}|\(cid:\d+\)|/[a-z]+\.[a-z]+"
)
_NAMED_SHARE: Final = 0.3
_STRANGE_SHARE: Final = 0.02
_OF_FONTS: Final = re.compile("encoding|broken line|cmap|font", re.IGNORECASE)
"""Warnings of pypdf about unknown glyphs."""
_DEEPEST_FORM: Final = 8
_DEEPEST_FIELD: Final = 20
_LARGEST: Final = 256_000_000
"""The maximum number of bytes of the unpacked text of a .docx."""


class Pages(NamedTuple):
    """The text of a PDF.

    Args:
        title: The title in the metadata; often empty.
        total: The number of its pages.
        texts: The text of each page, or of the first ones.
    """

    title: str
    total: int
    texts: list[str]


def pdf_pages(source: str | IO[bytes], name: str, max_pages: int | None = None) -> Pages:
    """Read the text of a PDF page by page; a scanned page has no text.

    Args:
        source: The path, or its content.
        name: The document, for messages.
        max_pages: The maximum number of pages; all when None.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    try:
        reader = PdfReader(source)
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolExecutionError(f"{name} is a PDF document with a password")
        total = len(reader.pages)
        texts, damaged_pages, unknown_fonts = _texts_of(reader.pages[:max_pages])
        values = list(map(_values_on, reader.pages[:max_pages]))
        title = _title(reader)
    except DependencyError as error:
        raise ToolExecutionError(
            f"{name} is a PDF document that needs a library to be read: {error}"
        ) from error
    except (PyPdfError, *_DAMAGE) as error:
        raise ToolExecutionError(f"{name} cannot be read as a PDF document") from error
    if damaged_pages and len(damaged_pages) == len(texts):
        raise ToolExecutionError(f"{name}: no page of it can be read")
    if damaged_pages:
        note(f"{name}: pages that are damaged are '': {', '.join(map(str, damaged_pages))}")
    garbled = [n for n, text in enumerate(texts, 1) if n in unknown_fonts or _is_garbled(text)]
    if garbled:
        page_list = ", ".join(map(str, garbled))
        note(
            f"{name}: fonts of pages {page_list} do not tell their letters, so the "
            "text may be wrong: only reading the pictures (OCR) gives it"
        )
    if any(values):
        note(f"{name}: values of form fields stand below the text of their page")
        texts = [
            "\n".join(filter(None, [text, *field_values]))
            for text, field_values in zip(texts, values, strict=True)
        ]
        damaged_pages = [number for number in damaged_pages if not texts[number - 1]]
    textless_count = texts.count("") - len(damaged_pages)
    tell_bare(name, textless_count, len(texts))
    if not total:
        note(f"{name} has no pages")
    return Pages(title, total, texts)


def tell_bare(name: str, bare_pages: int, total: int) -> None:
    """Add a note about the pages of a document that have no text."""
    if bare_pages:
        note(
            f"{name}: {bare_pages} of {total} pages hold no text, as scanned pages do: only "
            "reading the pictures (OCR) gives theirs"
        )


def _is_garbled(text: str) -> bool:
    """Return whether a text has glyph names or private characters instead of letters."""
    signs = "".join(text.split())
    glyph_letters = sum(map(len, _GLYPH.findall(signs)))
    strange = sum(1 for sign in signs if category(sign) in ("Co", "Cn", "Cc") or sign == "\ufffd")
    return glyph_letters > _NAMED_SHARE * len(signs) or strange > _STRANGE_SHARE * len(signs)


class _LogCollector(logging.Handler):
    """Collects pypdf's log messages about a page."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Collect the message of a log record."""
        self.texts.append(record.getMessage())


def _texts_of(pages: Iterable[Any]) -> tuple[list[str], list[int], list[int]]:
    """Return the pages' texts, and the numbers of pages unreadable or with unknown letters."""
    from pypdf.errors import DependencyError, PyPdfError

    texts: list[str] = []
    unread: list[int] = []
    unknown: list[int] = []
    remarks, log = _LogCollector(), logging.getLogger("pypdf")
    log.addHandler(remarks)
    try:
        for number, page in enumerate(pages, 1):
            remarks.texts.clear()
            _prefer_declared(page)
            try:
                texts.append(page.extract_text().strip())
            except (DependencyError, PyPdfError, *_DAMAGE):
                texts.append("")
                unread.append(number)
            if any(map(_OF_FONTS.search, remarks.texts)):
                unknown.append(number)
    finally:
        log.removeHandler(remarks)
    return texts, unread, unknown


def _prefer_declared(holder: Any, depth: int = 0) -> None:
    """Remove embedded fonts whose encoding the document declares: pypdf prefers the font's own."""
    try:
        resources = holder["/Resources"].get_object()
        for font in _entries_of(resources, "/Font"):
            encoding = font.get("/Encoding")
            encoding = None if encoding is None else encoding.get_object()
            is_declared = isinstance(encoding, str) or "/BaseEncoding" in (encoding or ())
            if is_declared and "/FontDescriptor" in font:
                for name in ("/FontFile", "/FontFile3"):
                    font["/FontDescriptor"].get_object().pop(name, None)
        for form in _entries_of(resources, "/XObject") if depth < _DEEPEST_FORM else ():
            if form.get("/Subtype") == "/Form":
                _prefer_declared(form, depth + 1)
    except Exception:  # whatever a damaged entry leads to
        return


def _entries_of(resources: Any, name: str) -> list[Any]:
    entries = resources.get(name)
    return [] if entries is None else [each.get_object() for each in entries.get_object().values()]


def _values_on(page: Any) -> list[str]:
    """Return a page's filled-in form fields, one per line, and its text annotations."""
    try:
        values = (_value_of(each.get_object()) for each in page.get("/Annots") or ())
        return [line for line in values if line]
    except Exception:  # whatever a damaged entry leads to
        return []


def _value_of(field: Any) -> str:
    """Return a form field with its value, or the text of an annotation."""
    kind = field.get("/Subtype")
    if kind == "/FreeText":
        return str(field.get("/Contents") or "").strip()
    if kind != "/Widget":
        return ""
    names: list[str] = []
    fields: dict[str, Any] = {}
    holder, depth = field, 0
    while holder is not None and depth < _DEEPEST_FIELD:
        names[:0] = [str(holder["/T"])] if "/T" in holder else []
        fields = {**holder, **fields}
        holder, depth = holder.get("/Parent"), depth + 1
        holder = None if holder is None else holder.get_object()
    if fields.get("/FT") == "/Btn":
        state = str(fields.get("/AS") or "/Off")
        value = "" if state == "/Off" else state.removeprefix("/")
    else:
        entry = fields.get("/V") if fields.get("/FT") in ("/Tx", "/Ch") else None
        entry = None if entry is None else entry.get_object()
        several = cast("list[Any]", entry) if isinstance(entry, list) else [entry]
        value = ", ".join(str(each).strip() for each in several if isinstance(each, str))
    return f"{'.'.join(names)}: {value}" if value else ""


def _title(reader: Any) -> str:
    """Return the title; empty if unreadable, because the text is still useful."""
    try:
        title = reader.metadata.title if reader.metadata else None
        return str(title) if isinstance(title, str) else ""
    except Exception:  # whatever a damaged entry leads to
        return ""


def docx_lines(path: str, name: str) -> Iterator[str]:
    """Read the text of a .docx: a line for each paragraph, cells of tables between tabs.

    Args:
        path: The path of the document.
        name: The document, for messages.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    if is_locked(path):
        raise ToolExecutionError(f"{name} has a password; save it without one")
    try:
        with zipfile.ZipFile(usual_form(path)) as archive:
            with archive.open(_body_of(archive)) as part:
                content = part.read(_LARGEST + 1)
            _tell_left_out(archive, name)
        if len(content) > _LARGEST:
            raise ToolExecutionError(f"{name} has more than {_LARGEST:,} bytes of text")
        # No entity is expanded without a bound: expat has its own, and the child's memory has one.
        body = ET.fromstring(content).find(f"{_WORD}body")  # noqa: S314
    except KeyError:
        raise ToolExecutionError(f"{name} holds no text of a .docx") from None
    except (zipfile.BadZipFile, ET.ParseError, OSError, NotImplementedError, RuntimeError) as error:
        raise ToolExecutionError(f"{name} cannot be read as a .docx: {error}") from error
    if body is None or not any(part.text for part in body.iter(f"{_WORD}t")):
        note(f"{name} holds no text")
    for block in () if body is None else body:
        if block.tag == f"{_WORD}tbl":
            for row in block.findall(f"{_WORD}tr"):
                cells = [child for child in row if child.tag == f"{_WORD}tc"]
                yield "\t".join(" ".join(_paragraphs(cell)) for cell in cells)
        else:
            yield from _paragraphs(block)


def _body_of(archive: zipfile.ZipFile) -> str:
    """Return the name of the document's main part, which some programs number."""
    try:
        relations = ET.fromstring(archive.read("_rels/.rels"))  # noqa: S314 - as of the text
    except (KeyError, ET.ParseError):
        return _BODY
    for each in relations.iter(_RELATIONSHIP):
        if each.get("Type", "").endswith(_MAIN):
            return each.get("Target", _BODY).lstrip("/")
    return _BODY


def _tell_left_out(archive: zipfile.ZipFile, name: str) -> None:
    """Add a note about footnotes and similar parts, which are not in the text."""
    names = set(archive.namelist())
    left_out_kinds = [
        kind
        for kind in _NOTES
        if f"word/{kind}.xml" in names and b"<w:t" in archive.read(f"word/{kind}.xml")[:_LARGEST]
    ]
    if left_out_kinds:
        note(f"{name}: its {' and '.join(left_out_kinds)} are not in the text")


def _paragraphs(block: ET.Element) -> Iterator[str]:
    """Yield the text of each paragraph, followed by the text of its text boxes."""
    if block.tag == f"{_WORD}p":
        yield "".join(_pieces(block)).strip()
    for part in block:
        if part.tag != _OTHER_FORM:
            yield from _paragraphs(part)


def _pieces(block: ET.Element) -> Iterator[str]:
    """Yield the parts of a paragraph's text, without nested paragraphs."""
    for part in block:
        if part.tag == f"{_WORD}t":
            yield part.text or ""
        elif part.tag == f"{_WORD}sym":
            code = part.get(f"{_WORD}char", "")
            yield chr(int(code, 16)) if _SYMBOL.fullmatch(code) else ""
        elif part.tag in _MARKS:
            yield _MARKS[part.tag]
        elif part.tag not in _NO_TEXT:
            yield from _pieces(part)
