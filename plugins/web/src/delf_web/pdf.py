"""The text of PDF documents, with the package pypdf."""

from __future__ import annotations

import io

from delf.errors import ToolExecutionError
from delf_web.document import Document
from delf_web.pages import Text


def read_pdf(document: Document) -> Text:
    """The text of a PDF document, page after page.

    Args:
        document: The document.

    Raises:
        ToolExecutionError: When the document cannot be read.
    """
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    try:
        reader = PdfReader(io.BytesIO(document.content))
        texts = [page.extract_text().strip() for page in reader.pages]
        title = reader.metadata.title if reader.metadata else None
    except (PyPdfError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ToolExecutionError(f"{document.url} cannot be read as a PDF document") from error
    return Text(title=title or "", date=None, text="\n\n".join(filter(None, texts)))
