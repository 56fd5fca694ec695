"""The text of PDF documents, extracted by pypdf."""

from __future__ import annotations

import io

from delf_confined.documents import pdf_pages
from delf_web.document import Document
from delf_web.pages import Text


def read_pdf(document: Document) -> Text:
    """Return the title and the text of all pages of a PDF document.

    Args:
        document: The PDF document.

    Raises:
        ToolExecutionError: If the document cannot be read.
    """
    pages = pdf_pages(io.BytesIO(document.content), document.url)
    return Text(title=pages.title, date=None, text="\n\n".join(filter(None, pages.texts)))
