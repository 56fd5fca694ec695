"""Text extraction from untrusted PDF and .docx documents. Call it in a confined child."""

from __future__ import annotations

import logging
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Final, NamedTuple, cast
from unicodedata import category
from xml.etree import ElementTree as ET

from delf.errors import ToolExecutionError
from delf.notes import note
from delf_confined.office import is_locked, with_usual_part_names

_WORD: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BODY: Final = "word/document.xml"
_MAIN: Final = "/relationships/officeDocument"
_RELATIONSHIP: Final = "{http://schemas.openxmlformats.org/package/2006/relationships}Relationship"
_SYMBOL: Final = re.compile("[0-9A-Fa-f]{4}")
_FALLBACK: Final = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_TEXT_OF_ELEMENT: Final = {
    f"{_WORD}tab": "\t",
    f"{_WORD}ptab": "\t",
    f"{_WORD}br": "\n",
    f"{_WORD}cr": "\n",
    f"{_WORD}noBreakHyphen": "-",
}
# The XML elements inside a paragraph whose content is not part of its text.
_SKIPPED_ELEMENTS: Final = (
    _FALLBACK,
    *(f"{_WORD}{tag}" for tag in ("p", "tabs", "del", "moveFrom")),
)
_NOTES: Final = ("footnotes", "endnotes", "comments")
# The exceptions that pypdf raises for damaged documents, besides its own error classes.
_DAMAGE_ERRORS: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    OSError,
)
_GLYPH_NAME: Final = re.compile(
    r"/(?:[A-Za-z]{1,2}|uni|cid|glyph|index)[0-9A-Fa-f]{2,5}|\(cid:\d+\)|/[a-z]+\.[a-z]+"
)
_MAX_GLYPH_NAME_SHARE: Final = 0.3
_MAX_STRANGE_SHARE: Final = 0.02
# Matches warnings of pypdf about fonts whose letters are unknown.
_FONT_WARNING: Final = re.compile("encoding|broken line|cmap|font", re.IGNORECASE)
_MAX_FORM_DEPTH: Final = 8
_MAX_FIELD_DEPTH: Final = 20
# The maximum size of the unpacked text of a .docx, in bytes.
_MAX_TEXT_BYTES: Final = 256_000_000


class Pages(NamedTuple):
    """The text of a PDF.

    Args:
        title: The title in the metadata; empty without one.
        total: The number of pages of the PDF.
        texts: The texts of the pages that were read.
    """

    title: str
    total: int
    texts: list[str]


class _Page(NamedTuple):
    """A page of a PDF.

    Args:
        number: The number of the page, from 1.
        text: The text, without the values of form fields.
        form_values: The values of form fields, and other annotations.
        is_damaged: Whether the text cannot be read.
        has_unknown_font: Whether a font does not state the letters of its glyphs.
    """

    number: int
    text: str
    form_values: Sequence[str]
    is_damaged: bool
    has_unknown_font: bool


def pdf_pages(source: str | IO[bytes], name: str, max_pages: int | None = None) -> Pages:
    """Read the text of each page of a PDF. A scanned page has an empty text.

    The result of the current tool call gets notes about pages that are damaged, scanned or
    unreadable, and about form fields.

    Args:
        source: The path of the PDF, or a file object with its content.
        name: The name of the document for messages.
        max_pages: The number of pages to read; all when None.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    try:
        reader = PdfReader(source)
        # An encrypted document that everybody may read, but not print, has an empty password.
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolExecutionError(f"{name} is a PDF document with a password")
        page_count = len(reader.pages)
        pages = _read_pages(reader.pages[:max_pages])
        title = _title(reader)
    except DependencyError as error:
        raise ToolExecutionError(
            f"{name} is a PDF document that needs a library to be read: {error}"
        ) from error
    except (PyPdfError, *_DAMAGE_ERRORS) as error:
        raise ToolExecutionError(f"{name} cannot be read as a PDF document") from error
    _note_damaged_pages(name, pages)
    _note_garbled_pages(name, pages)
    if any(page.form_values for page in pages):
        note(f"{name}: values of form fields stand below the text of their page")
    texts = ["\n".join(filter(None, (page.text, *page.form_values))) for page in pages]
    # Damaged pages are not counted, because they have a note of their own.
    textless_count = sum(
        not text and not page.is_damaged for page, text in zip(pages, texts, strict=True)
    )
    note_textless_pages(name, textless_count, len(texts))
    if not page_count:
        note(f"{name} has no pages")
    return Pages(title, page_count, texts)


def note_textless_pages(name: str, textless_pages: int, page_count: int) -> None:
    """Add a note with the number of pages without text, if there are any."""
    if textless_pages:
        note(
            f"{name}: {textless_pages} of {page_count} pages hold no text, as scanned pages do: "
            "only reading the pictures (OCR) gives their text"
        )


def _note_damaged_pages(name: str, pages: Sequence[_Page]) -> None:
    """Add a note about the damaged pages of a document; raise if no page can be read."""
    damaged_pages = [page.number for page in pages if page.is_damaged]
    if not damaged_pages:
        return
    if len(damaged_pages) == len(pages):
        raise ToolExecutionError(f"{name}: no page of it can be read")
    page_list = ", ".join(map(str, damaged_pages))
    note(f"{name}: the texts of damaged pages are empty: {page_list}")


def _note_garbled_pages(name: str, pages: Sequence[_Page]) -> None:
    """Add a note about the pages of a document whose text may be wrong."""
    garbled_pages = [
        page.number for page in pages if page.has_unknown_font or _is_garbled(page.text)
    ]
    if garbled_pages:
        page_list = ", ".join(map(str, garbled_pages))
        note(
            f"{name}: the fonts of pages {page_list} do not say which letters they draw, so the "
            "text may be wrong: only reading the pictures (OCR) gives the right text"
        )


def _is_garbled(text: str) -> bool:
    """Return True if too much of a text is glyph names, unassigned or private-use characters."""
    characters = "".join(text.split())
    glyph_name_length = sum(map(len, _GLYPH_NAME.findall(characters)))
    strange_count = sum(category(c) in ("Co", "Cn", "Cc") for c in characters)
    strange_count += characters.count("\ufffd")
    has_glyph_names = glyph_name_length > _MAX_GLYPH_NAME_SHARE * len(characters)
    return has_glyph_names or strange_count > _MAX_STRANGE_SHARE * len(characters)


class _LogCollector(logging.Handler):
    """Collects the log messages of pypdf."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _read_pages(pages: Iterable[Any]) -> list[_Page]:
    """Read the text of each page of a PDF."""
    from pypdf.errors import DependencyError, PyPdfError

    read_pages: list[_Page] = []
    collector = _LogCollector()  # pypdf only logs that it cannot read a font's letters
    log = logging.getLogger("pypdf")
    log.addHandler(collector)
    try:
        for number, page in enumerate(pages, 1):
            collector.texts.clear()
            _prefer_declared_encodings(page)
            try:
                text, is_damaged = page.extract_text().strip(), False
            except (DependencyError, PyPdfError, *_DAMAGE_ERRORS):
                text, is_damaged = "", True
            has_unknown_font = any(map(_FONT_WARNING.search, collector.texts))
            values = _form_values(page)
            read_pages.append(_Page(number, text, values, is_damaged, has_unknown_font))
    finally:
        log.removeHandler(collector)
    return read_pages


def _prefer_declared_encodings(page_or_form: Any, depth: int = 0) -> None:
    """Remove each embedded font whose encoding the document declares, unless it is TrueType.

    pypdf uses the declared encoding only without an embedded font. Errors of damaged entries are
    ignored.
    """
    try:
        resources = page_or_form["/Resources"].get_object()
        for font in _entries_of(resources, "/Font"):
            if _declares_encoding(font) and "/FontDescriptor" in font:
                # Fonts in /FontFile2 (TrueType) stay: pypdf takes no encoding from them.
                for name in ("/FontFile", "/FontFile3"):
                    font["/FontDescriptor"].get_object().pop(name, None)
        if depth >= _MAX_FORM_DEPTH:
            return
        for form in _entries_of(resources, "/XObject"):
            if form.get("/Subtype") == "/Form":
                _prefer_declared_encodings(form, depth + 1)
    except Exception:  # a damaged entry may cause any error
        return


def _declares_encoding(font: Any) -> bool:
    """Return True if the document names the encoding of a font."""
    encoding = font.get("/Encoding")
    if encoding is None:
        return False
    encoding = encoding.get_object()
    if isinstance(encoding, dict):  # the differences from a named encoding, or from the font's own
        return "/BaseEncoding" in encoding
    return isinstance(encoding, str)  # the name of an encoding


def _entries_of(resources: Any, name: str) -> list[Any]:
    entries = resources.get(name)
    if entries is None:
        return []
    return [each.get_object() for each in entries.get_object().values()]


def _form_values(page: Any) -> list[str]:
    """Return the filled-in form fields and the text annotations of a page, one text each."""
    try:
        values = (_form_value(each.get_object()) for each in page.get("/Annots") or ())
        return [line for line in values if line]
    except Exception:  # a damaged entry may cause any error
        return []


def _form_value(field: Any) -> str:
    """Return the text of a PDF annotation.

    The text of a form field is ``name: value``, and the text of a free-text annotation is its
    content. The text is empty for a field without a value, and for any other annotation.
    """
    kind = field.get("/Subtype")
    if kind == "/FreeText":
        return str(field.get("/Contents") or "").strip()
    if kind != "/Widget":
        return ""
    names: list[str] = []
    entries: dict[str, Any] = {}
    # A field inherits the entries of its ancestors, and its full name begins with their names.
    for ancestor in _with_ancestors(field):
        if "/T" in ancestor:
            names.insert(0, str(ancestor["/T"]))
        entries = {**ancestor, **entries}
    value = _value_of_widget(entries)
    return f"{'.'.join(names)}: {value}" if value else ""


def _with_ancestors(field: Any) -> Iterator[Any]:
    """Yield a form field and its ancestors, nearest first: at most ``_MAX_FIELD_DEPTH`` fields."""
    for _ in range(_MAX_FIELD_DEPTH):
        yield field
        parent = field.get("/Parent")
        field = None if parent is None else parent.get_object()
        if field is None:  # no parent, or a reference to an object that is not in the document
            return


def _value_of_widget(entries: Mapping[str, Any]) -> str:
    """Return the value that a form field with these entries shows; empty without a value."""
    kind = entries.get("/FT")
    if kind == "/Btn":  # a check box or a radio button
        state = str(entries.get("/AS") or "/Off")
        return "" if state == "/Off" else state.removeprefix("/")
    value = entries.get("/V")
    if kind not in ("/Tx", "/Ch") or value is None:
        return ""
    value = value.get_object()
    choices = cast("list[Any]", value) if isinstance(value, list) else [value]
    texts = [str(choice).strip() for choice in choices if isinstance(choice, str)]
    return ", ".join(texts)


def _title(reader: Any) -> str:
    """Return the title in the metadata; empty if there is none or it cannot be read."""
    try:
        title = reader.metadata.title if reader.metadata else None
        return str(title) if isinstance(title, str) else ""
    except Exception:  # a damaged entry may cause any error
        return ""


def docx_lines(path: str, name: str) -> Iterator[str]:
    """Yield the lines of a .docx: a line for each paragraph and each row of a table.

    The cells of a row are separated by tabs.

    Args:
        path: The path of the document.
        name: The name of the document for messages.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    body = _docx_body(path, name)
    if body is None or not any(part.text for part in body.iter(f"{_WORD}t")):
        note(f"{name} holds no text")
    if body is None:
        return
    for block in body:
        if block.tag == f"{_WORD}tbl":
            for row in block.findall(f"{_WORD}tr"):
                cells = row.findall(f"{_WORD}tc")
                cell_texts = [" ".join(_paragraph_texts(cell)) for cell in cells]
                yield "\t".join(cell_texts)
        else:
            yield from _paragraph_texts(block)


def _docx_body(path: str, name: str) -> ET.Element | None:
    """Return the element with the text of a .docx; None if the document has no such element."""
    if is_locked(path):
        raise ToolExecutionError(f"{name} has a password; save it without one")
    try:
        # with_usual_part_names() gives the parts of the archive the names that Word gives them.
        with zipfile.ZipFile(with_usual_part_names(path)) as archive:
            with archive.open(_main_part_name(archive)) as part:
                content = part.read(_MAX_TEXT_BYTES + 1)
            _note_skipped_parts(archive, name)
        if len(content) > _MAX_TEXT_BYTES:
            raise ToolExecutionError(f"{name} has more than {_MAX_TEXT_BYTES:,} bytes of text")
        return _parse_xml(content).find(f"{_WORD}body")
    except KeyError:  # the archive has no such part
        raise ToolExecutionError(f"{name} holds no text of a .docx") from None
    # zipfile raises RuntimeError for an encrypted part, NotImplementedError for an unknown method.
    except (zipfile.BadZipFile, ET.ParseError, OSError, NotImplementedError, RuntimeError) as error:
        raise ToolExecutionError(f"{name} cannot be read as a .docx: {error}") from error


def _parse_xml(content: bytes) -> ET.Element:
    # Safe for untrusted XML: expat limits the expansion of entities, and this child process has a
    # memory limit.
    return ET.fromstring(content)  # noqa: S314


def _main_part_name(archive: zipfile.ZipFile) -> str:
    """Return the name of the part with the text of a .docx, such as ``word/document.xml``."""
    try:
        relations = _parse_xml(archive.read("_rels/.rels"))
    except (KeyError, ET.ParseError):
        return _BODY
    for each in relations.iter(_RELATIONSHIP):
        if each.get("Type", "").endswith(_MAIN):
            return each.get("Target", _BODY).lstrip("/")
    return _BODY


def _note_skipped_parts(archive: zipfile.ZipFile, name: str) -> None:
    """Add a note if the document has footnotes, endnotes or comments, which are not read."""
    names = set(archive.namelist())
    left_out_kinds: list[str] = []
    for kind in _NOTES:
        part = f"word/{kind}.xml"
        if part not in names:
            continue
        has_text = b"<w:t" in archive.read(part)[:_MAX_TEXT_BYTES]
        if has_text:
            left_out_kinds.append(kind)
    if left_out_kinds:
        note(f"{name}: its {' and '.join(left_out_kinds)} are not in the text")


def _paragraph_texts(block: ET.Element) -> Iterator[str]:
    """Yield the text of each paragraph, followed by the text of its text boxes."""
    if block.tag == f"{_WORD}p":
        yield "".join(_text_pieces(block)).strip()
    for part in block:
        if part.tag != _FALLBACK:
            yield from _paragraph_texts(part)


def _text_pieces(block: ET.Element) -> Iterator[str]:
    """Yield the pieces of a paragraph's text, without paragraphs nested in it."""
    for part in block:
        if part.tag == f"{_WORD}t":
            yield part.text or ""
        elif part.tag == f"{_WORD}sym":
            code = part.get(f"{_WORD}char", "")
            yield chr(int(code, 16)) if _SYMBOL.fullmatch(code) else ""
        elif part.tag in _TEXT_OF_ELEMENT:
            yield _TEXT_OF_ELEMENT[part.tag]
        elif part.tag not in _SKIPPED_ELEMENTS:
            yield from _text_pieces(part)
