"""The text of documents of strangers: PDF and .docx. To be called in a confined child."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple
from xml.etree import ElementTree as ET

from delf.errors import ToolExecutionError
from delf.notes import note
from delf_confined.office import is_locked, usual_form

_WORD: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BODY: Final = "word/document.xml"
_LARGEST: Final = 256_000_000
"""Bytes of the text of a .docx, unpacked."""


class Pages(NamedTuple):
    """The text of a PDF.

    Args:
        title: As its author wrote it; often empty.
        total: The number of its pages.
        texts: The text of each page, or of the first ones.
    """

    title: str
    total: int
    texts: list[str]


def pdf_pages(source: str | IO[bytes], name: str, most: int | None = None) -> Pages:
    """Read the text of a PDF page after page; a page that is a picture has none.

    Args:
        source: Its path, or its content.
        name: The document, for messages.
        most: The most pages; all when None.

    Raises:
        ToolExecutionError: When the document cannot be read.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, PyPdfError

    try:
        reader = PdfReader(source)
        if reader.is_encrypted and not reader.decrypt(""):
            raise ToolExecutionError(f"{name} is a PDF document with a password")
        total = len(reader.pages)
        texts = [page.extract_text().strip() for page in reader.pages[:most]]
        title = _title(reader)
    except DependencyError as error:
        raise ToolExecutionError(f"{name} is a PDF document that is encrypted") from error
    except (PyPdfError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ToolExecutionError(f"{name} cannot be read as a PDF document") from error
    bare = texts.count("")
    if bare:
        note(
            f"{name}: {bare} of {len(texts)} pages hold no text, as scanned pages do: only reading "
            "the pictures (OCR) gives theirs"
        )
    elif not total:
        note(f"{name} has no pages")
    return Pages(title, total, texts)


def _title(reader: Any) -> str:
    """The title; empty where it cannot be read, which is no reason to lose the text."""
    try:
        title = reader.metadata.title if reader.metadata else None
        return title if isinstance(title, str) else ""
    except Exception:  # whatever a damaged entry leads to
        return ""


def docx_lines(path: str, name: str) -> Iterator[str]:
    """Read the text of a .docx: a line for each paragraph, cells of tables between tabs.

    Args:
        path: Of the document.
        name: The document, for messages.

    Raises:
        ToolExecutionError: When the document cannot be read.
    """
    if is_locked(path):
        raise ToolExecutionError(f"{name} has a password; save it without one")
    try:
        with zipfile.ZipFile(usual_form(path)) as archive, archive.open(_BODY) as part:
            content = part.read(_LARGEST + 1)
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


def _paragraphs(block: ET.Element) -> Iterator[str]:
    return (_text(paragraph) for paragraph in block.iter(f"{_WORD}p"))


def _text(paragraph: ET.Element) -> str:
    marks = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n"}
    return "".join(
        (part.text or "") if part.tag == f"{_WORD}t" else marks.get(part.tag, "")
        for part in paragraph.iter()
    ).strip()
