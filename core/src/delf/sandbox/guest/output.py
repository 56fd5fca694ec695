"""What a script prints and the files that it hands over."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Generator
from typing import Any, TypeGuard

_FLUSH_CHARS = 32 * 1024
_FLUSH_SECONDS = 0.05
_CHUNK = 1024 * 1024
_MAX_NAME = 200
MAX_FILES = 1000
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]")


class LimitReachedError(BaseException):
    """Ends a script that went over a limit; no ``except Exception`` stops it."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit
        self.message = message


class Printer(io.TextIOBase):
    """Standard output of scripts: gathers text and sends it in pieces.

    Args:
        send: Passes a piece on, at once if told so.
    """

    def __init__(self, send: Callable[[str, bool], None]) -> None:
        super().__init__()
        self.limit = 10 * 1024 * 1024
        self._send = send
        self._parts: list[str] = []
        self._waiting = 0
        self._total = 0
        self._sent_at = 0.0

    def start(self) -> None:
        """A new script begins; its output counts from zero."""
        self._total = 0
        self._sent_at = time.monotonic()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"write() takes text, not {type(text).__name__}")
        size = len(text)
        if self._total + size > self.limit:
            self.flush()
            raise LimitReachedError(
                "output", f"the script printed more than {self.limit:,} characters"
            )
        self._parts.append(text)
        self._total += size
        self._waiting += size
        if self._waiting >= _FLUSH_CHARS or time.monotonic() - self._sent_at > _FLUSH_SECONDS:
            self._pass_on(at_once=True)
        return size

    def flush(self) -> None:
        self._pass_on(at_once=False)

    def _pass_on(self, *, at_once: bool) -> None:
        if not self._parts:
            return
        text = "".join(self._parts)
        self._parts.clear()
        self._waiting = 0
        self._sent_at = time.monotonic()
        self._send(text, at_once)


def check_file_name(name: object) -> str:
    """A relative name that stays inside the output folder on every system.

    Raises:
        ValueError: When it does not.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError("an output file needs a name")
    parts = name.split("/")
    bad = (
        len(name) > _MAX_NAME
        or _BAD_NAME.search(name)
        or any(part in ("", ".", "..") or part != part.strip() for part in parts)
        or name.startswith("~")
    )
    if bad:
        raise ValueError(
            f"{name[:80]!r} cannot be an output file's name; use a plain name such as 'report.csv'"
        )
    return name


def to_bytes(name: str, content: Any) -> bytes:
    """Content in the form that its type and the name's ending ask for.

    Text and bytes as they are; dicts as JSON; lists as JSON, or CSV for ``.csv`` names with
    dict rows; data frames by their own writers.

    Raises:
        TypeError: For content that has no form as a file.
    """
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    if _is_bytes(content):
        return bytes(content)
    if hasattr(content, "to_csv") and hasattr(content, "columns"):
        return _frame_to_bytes(name, content)
    if _is_list(content) and name.lower().endswith(".csv"):
        return _rows_to_csv(list(content))
    if _is_list(content) and name.lower().endswith(".xlsx"):
        return _rows_to_excel(list(content))
    if isinstance(content, (dict, list, tuple)):
        return json.dumps(content, indent=2, ensure_ascii=False, default=str).encode()
    raise TypeError(
        f"{name!r}: cannot write a {type(content).__name__} as a file; "
        "give text, bytes, a dict, a list of dicts or a data frame"
    )


def _is_bytes(value: Any) -> TypeGuard[bytes | bytearray]:
    return isinstance(value, (bytes, bytearray, memoryview))


def _is_list(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(value, (list, tuple))


def _rows_to_csv(rows: list[Any]) -> bytes:
    out = io.StringIO()
    if rows and all(isinstance(row, dict) for row in rows):
        columns = list(dict.fromkeys(key for row in rows for key in row))
        writer = csv.DictWriter(out, fieldnames=columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        plain = csv.writer(out, lineterminator="\n")
        plain.writerows(row if _is_list(row) else [row] for row in rows)
    return out.getvalue().encode("utf-8", "surrogatepass")


def _rows_to_excel(rows: list[Any]) -> bytes:
    try:
        import openpyxl  # pyright: ignore[reportMissingModuleSource]
    except ImportError:
        raise TypeError(
            "an .xlsx file needs the package openpyxl in allowed_libs; write a .csv instead"
        ) from None
    book: Any = openpyxl.Workbook()
    sheet = book.active
    if rows and all(isinstance(row, dict) for row in rows):
        columns = list(dict.fromkeys(key for row in rows for key in row))
        rows = [columns, *([row.get(column) for column in columns] for row in rows)]
    for row in rows:
        sheet.append(list(row) if _is_list(row) else [row])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _frame_to_bytes(name: str, frame: Any) -> bytes:
    if name.lower().endswith(".xlsx"):
        out = io.BytesIO()
        frame.to_excel(out, index=False)
        return out.getvalue()
    if name.lower().endswith(".json"):
        return str(frame.to_json(orient="records", indent=2)).encode()
    return str(frame.to_csv(index=False)).encode()


class FileSender:
    """``add_to_output_files`` as scripts see it.

    Args:
        send: Passes a chunk on: name, whether it is the last, bytes.
    """

    def __init__(self, send: Callable[[str, bool, bytes], None]) -> None:
        self.file_limit = 50 * 1024 * 1024
        self.total_limit = 200 * 1024 * 1024
        self._total = 0
        self._count = 0
        self._send = send

    def __call__(self, name: str, content: Any) -> Nothing:
        """Hand a file over; it may be awaited or not."""
        data = to_bytes(check_file_name(name), content)
        if len(data) > self.file_limit:
            raise LimitReachedError(
                "file", f"{name!r} has {len(data):,} bytes; at most {self.file_limit:,} are allowed"
            )
        self._total += len(data)
        self._count += 1
        if self._total > self.total_limit:
            raise LimitReachedError(
                "file", f"the output files together pass {self.total_limit:,} bytes"
            )
        if self._count > MAX_FILES:
            raise LimitReachedError("file", f"a task can hand over {MAX_FILES:,} files")
        for start in range(0, max(len(data), 1), _CHUNK):
            chunk = data[start : start + _CHUNK]
            self._send(name, start + _CHUNK >= len(data), chunk)
        return Nothing()


class Nothing:
    """Lets a script await what needs no waiting."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield

    def __repr__(self) -> str:
        return "None"
