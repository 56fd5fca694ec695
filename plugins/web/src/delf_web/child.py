"""Reads documents in a process of its own, which can be bounded and killed.

What strangers write can keep a parser busy for minutes, or fill its memory. Takes frames from
standard input (a line of JSON, then a document's bytes) and answers each with a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from delf.errors import DelfError, ToolExecutionError
from delf_web.document import Document
from delf_web.feeds import read_feed
from delf_web.markup import check_markup
from delf_web.pages import Text, feeds_of, read_links, read_tables, read_text, text_of
from delf_web.pdf import read_pdf

HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
PDF: Final = "application/pdf"
_FEEDS: Final = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
_TEXTS: Final = frozenset({"application/json", "application/xml", "application/javascript"})
_MEMORY: Final = 1_000_000_000
_MEMORY_OF_A_BYTE: Final = 100


def _text(document: Document) -> Text:
    kind = document.kind
    if kind in HTML:
        return read_text(document)
    if kind == PDF:
        return read_pdf(document)
    if kind in _FEEDS:
        entries = read_feed(document)
        lines = [f"- [{item['title']}]({item['url']}) {item['date'] or ''}" for item in entries]
        return Text(title="", date=None, text="\n".join(lines))
    if kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml")):
        return Text(title="", date=None, text=text_of(document))
    raise ToolExecutionError(f"{document.url} is not text: it is {kind}")


def _page(read: Callable[[Document], Any]) -> Callable[[Document], Any]:
    def checked(document: Document) -> Any:
        if document.kind not in HTML:
            raise ToolExecutionError(f"{document.url} is not a page: it is {document.kind}")
        return read(document)

    return checked


_WORKS: Final[dict[str, Callable[[Document], Any]]] = {
    "text": _text,
    "links": _page(read_links),
    "tables": _page(read_tables),
    "feeds": feeds_of,
    "feed": read_feed,
}


def _answer(work: str, document: Document) -> dict[str, Any]:
    try:
        if document.kind in HTML:
            check_markup(document.content, document.url)
        return {"found": _WORKS[work](document)}
    except DelfError as error:
        return {"failed": error.message}
    except MemoryError:
        return {"failed": f"{document.url} needs more memory to be read than it may have"}
    except RecursionError:
        return {"failed": f"{document.url} is nested too deeply to be read"}
    except Exception as error:  # a parser of others, and what a stranger wrote
        return {"failed": f"{document.url} cannot be read: {type(error).__name__}: {error}"[:500]}


def _take(requests: BinaryIO) -> tuple[str, Document] | None:
    line = requests.readline()
    if not line:
        return None
    head = json.loads(line)
    content = requests.read(head["size"])
    document = Document(
        url=head["url"], kind=head["kind"], charset=head["charset"], content=content
    )
    return head["work"], document


def main(most: int) -> None:
    """Answer one frame after the other.

    Args:
        most: The most bytes of a document.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # and without it nobody reads the answers
    memory = _MEMORY + _MEMORY_OF_A_BYTE * most
    for what, bound in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):  # where the system has a lower one
            resource.setrlimit(what, (bound, bound))
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a parser prints is not an answer
    while (frame := _take(requests)) is not None:
        answers.write(json.dumps(_answer(*frame)).encode() + b"\n")
        answers.flush()
