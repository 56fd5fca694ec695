"""The text of PDF documents, with the package pypdf."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from delf.errors import OptionalDependencyError, ToolExecutionError
from delf_web.pages import Text

if TYPE_CHECKING:
    from delf_web.fetch import Document


def read_pdf(document: Document) -> Text:
    """The text of a PDF document, page after page.

    Args:
        document: The document.

    Raises:
        OptionalDependencyError: When pypdf is not installed.
        ToolExecutionError: When the document cannot be read.
    """
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError as error:
        raise OptionalDependencyError(
            f"{document.url} is a PDF document, and pypdf is not installed",
            package="'delf-plugin-web[pdf]'",
        ) from error
    try:
        reader = PdfReader(io.BytesIO(document.content))
        texts = [page.extract_text().strip() for page in reader.pages]
        title = reader.metadata.title if reader.metadata else None
    except (PyPdfError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ToolExecutionError(f"{document.url} cannot be read as a PDF document") from error
    return Text(title=title or "", date=None, text="\n\n".join(filter(None, texts)))
