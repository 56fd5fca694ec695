"""Duties of every file format."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pytest

from delf.errors import ToolExecutionError
from delf.protocols.formats import FileFormat
from delf.values.encoding import dumps, loads
from delf_devkit.testing.contracts.base import Contract, fail_without, needs
from delf_devkit.testing.contracts.leavings import open_files

_AT_ONCE = 8
_MANY = 2_500
ODD_VALUES = (
    "=1+1",
    'a "b"',
    "it's",
    "a,b;c",
    "a\tb",
    "a\nb",
    "a=b",
    "\\n",
    "ä 🦊",
    "<b>&amp;",
    " x ",
)

KINDS_OF_VALUES = (
    *("007", "1e5", "true", "NA", "2026-03-01"),
    *(7, 2**60 + 1, 1.5, float("inf"), True, None),
)
ODD_NAMES = ("Price (€)", "price", "Größe", "class", "a.b", "2026")
# A word with two bytes that are invalid in UTF-8, and the text of a reader that ignores them.
_DAMAGED_WORD = b"a\xff\xfex"
_DAMAGED_WORD_WITHOUT_INVALID_BYTES = "ax"
_AMOUNT = Decimal("1234567.85")
_NAIVE = datetime(2026, 3, 1, 12, 30, 5)  # noqa: DTZ001 - a time without a zone
_ZONES = (timedelta(hours=5, minutes=30), -timedelta(hours=3, minutes=30))


class FormatContract(Contract):
    """Tests for a file format; needs fixtures ``file_format`` and ``path``, a file of the format.

    ``rows`` are the rows of the file's first table. With ``writes``, the suite writes ``rows`` to a
    file and reads them back. Set ``detects_truncation = False`` for a format in which truncated
    files cannot be recognised, such as plain lines.
    """

    rows: ClassVar[Sequence[dict[str, Any]]] = ()
    writes: ClassVar[bool] = False
    detects_truncation: ClassVar[bool] = True

    @pytest.fixture
    def file_format(self) -> FileFormat:
        """The format under test."""
        fail_without(self, "a fixture `file_format`")

    @pytest.fixture
    def path(self) -> Path:
        """A file of the format."""
        fail_without(self, "a fixture `path`")

    async def test_format_reads_rows(self, file_format: Any, path: Path) -> None:
        assert self.rows, "the suite needs `rows`"
        rows = await file_format.read(str(path), None)
        assert rows == list(self.rows)
        assert loads(dumps(rows)) == rows, "a script cannot be given these values"
        await self.check_loop_stays_free(lambda: file_format.read(str(path), None))

    async def test_format_reads_a_part_by_name(self, file_format: Any, path: Path) -> None:
        parts = await file_format.parts(str(path))
        assert all(isinstance(part, str) and part for part in parts)
        assert len(set(parts)) == len(parts)
        if parts:
            assert await file_format.read(str(path), parts[0]) == list(self.rows)
        try:
            rows = await file_format.read(str(path), "no such part")
        except ToolExecutionError as error:
            assert error.message.strip()  # noqa: PT017
        else:
            pytest.fail(f"a part that does not exist was read as {rows!r}: raise ToolException")

    async def test_truncated_file_raises(
        self, file_format: Any, path: Path, tmp_path: Path
    ) -> None:
        content = path.read_bytes()  # noqa: ASYNC240
        cut = tmp_path / f"cut{path.suffix}"
        # Truncate the file near its end, and in the middle of a line.
        for size in {len(content) - 3, _middle_of_a_line(content)}:
            cut.write_bytes(content[: max(size, 1)])  # an empty file may be a valid one
            try:
                rows = await file_format.read(str(cut), None)
            except ToolExecutionError:
                continue
            except Exception as error:
                pytest.fail(f"a file that ends early raised {type(error).__name__}: {error}")
            if self.detects_truncation:  # otherwise, the format may read the part that is left
                assert rows == list(self.rows), (
                    f"a file of {len(content)} bytes that ends after {size} was read as {rows!r}: "
                    "half a table would count as the whole; raise ToolException"
                )

    async def test_unreadable_file_raises(
        self, file_format: Any, path: Path, tmp_path: Path
    ) -> None:
        gone = tmp_path / f"gone{path.suffix}"
        gone.write_bytes(path.read_bytes())  # noqa: ASYNC240
        await file_format.read(str(gone), None)  # a format must not keep these rows
        gone.unlink()
        for bad in (gone, tmp_path):
            with pytest.raises(ToolExecutionError) as caught:
                await file_format.read(str(bad), None)
            self.check_message_explains(caught.value)

    async def test_invalid_content_raises(
        self, file_format: Any, path: Path, tmp_path: Path
    ) -> None:
        garbage = tmp_path / f"garbage{path.suffix}"
        garbage.write_bytes(bytes(range(256)) * 8)
        try:
            rows = await file_format.read(str(garbage), None)
        except ToolExecutionError:  # ToolException is its subclass for authors of plugins
            return
        except Exception as error:
            pytest.fail(
                f"a damaged file raised {type(error).__name__}: {error}; raise "
                "ToolException, so that a script learns what is wrong"
            )
        assert rows, "random bytes were read as no rows: a damaged file would count as empty"

    async def test_damaged_text_raises(self, file_format: Any, path: Path, tmp_path: Path) -> None:
        """Check that a file with an invalid byte in a value raises."""
        content = path.read_bytes()  # noqa: ASYNC240
        word = self._unique_text_in(content)
        if word is None:
            return  # the values are compressed, or no texts
        damaged = tmp_path / f"damaged{path.suffix}"
        damaged.write_bytes(content.replace(word.encode(), _DAMAGED_WORD))
        try:
            rows = await file_format.read(str(damaged), None)
        except ToolExecutionError:
            return
        except Exception as error:
            pytest.fail(f"a damaged file raised {type(error).__name__}: {error}")
        for value in chain.from_iterable(row.values() for row in rows):
            text = str(value)
            is_misread = text == _DAMAGED_WORD_WITHOUT_INVALID_BYTES or "\ufffd" in text
            assert not is_misread, (
                f"invalid bytes were read as {text!r}: what is damaged would look like a "
                "value; raise ToolException"
            )

    def _unique_text_in(self, content: bytes) -> str | None:
        """Return a text of ``rows`` that occurs once in the file; None without such a text."""
        for value in chain.from_iterable(row.values() for row in self.rows):
            is_long_text = isinstance(value, str) and len(value) > 2
            if is_long_text and content.count(value.encode()) == 1:
                return value
        return None

    async def test_concurrent_reads_are_independent(
        self, file_format: Any, path: Path, tmp_path: Path
    ) -> None:
        missing_file = tmp_path / f"gone{path.suffix}"
        for order in ((path, missing_file), (missing_file, path)):
            reads = (file_format.read(str(each), None) for each in order)
            results = await asyncio.gather(*reads, return_exceptions=True)
            result_by_path = dict(zip(order, results, strict=True))
            is_independent = result_by_path[path] == list(self.rows) and isinstance(
                result_by_path[missing_file], ToolExecutionError
            )
            assert is_independent, "two reads are mixed up: keep a file in variables, not in `self`"

    @needs("writes")
    async def test_concurrent_writes_are_independent(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        tables = [[["name"], [f"desk {number}"]] for number in range(_AT_ONCE)]
        contents = await asyncio.gather(*(file_format.write({"first": table}) for table in tables))
        for number, content in enumerate(contents):
            place = tmp_path / f"made{number}{path.suffix}"
            place.write_bytes(content)
            rows = await file_format.read(str(place), None)
            assert rows == [{"name": f"desk {number}"}], "two files that are written are mixed up"

    @needs("writes")
    async def test_reader_reads_written_files(
        self, file_format: Any, path: Path, tmp_path: Path
    ) -> None:
        names = list(self.rows[0])
        table = [names, *([row[name] for name in names] for row in self.rows)]
        copy = tmp_path / f"made{path.suffix}"
        copy.write_bytes(await file_format.write({"first": table}))
        assert await file_format.read(str(copy), None) == list(self.rows)

    @needs("writes")
    async def test_values_with_delimiters_round_trip(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        odd_path = tmp_path / f"odd{path.suffix}"
        for value in ODD_VALUES:
            table = [["name", "note"], ["desk", value], ["lamp", "plain"]]
            try:
                odd_path.write_bytes(await file_format.write({"first": table}))
            except ToolExecutionError:
                continue  # the format refuses the value, which is allowed
            rows = await file_format.read(str(odd_path), None)
            wanted = [{"name": "desk", "note": value}, {"name": "lamp", "note": "plain"}]
            assert rows == wanted, f"{value!r} is not kept: quote it, or raise ToolException"

    @needs("writes")
    async def test_column_names_round_trip(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        copy = tmp_path / f"names{path.suffix}"
        table = [list(ODD_NAMES), [f"value {number}" for number in range(len(ODD_NAMES))]]
        try:
            copy.write_bytes(await file_format.write({"first": table}))
        except ToolExecutionError:
            return  # the format refuses such names
        (row,) = await file_format.read(str(copy), None)
        assert list(row) == list(ODD_NAMES), (
            f"the columns {ODD_NAMES} are called {[*row]} after reading: scripts use the names "
            "that the user sees; keep them, or raise ToolException"
        )

    @needs("writes")
    async def test_values_keep_their_type(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        copy = tmp_path / f"kinds{path.suffix}"
        for value in KINDS_OF_VALUES:
            try:
                copy.write_bytes(await file_format.write({"first": [["name"], [value], ["end"]]}))
            except ToolExecutionError:  # such as its subclass ToolException
                continue  # the format refuses the value, which is allowed
            rows = await file_format.read(str(copy), None)
            if value is None:
                assert all("name" in row for row in rows), (
                    "a column is missing from the row where it has no value: row['name'] would "
                    "fail in a script; keep the column, with None"
                )
            read_values = [next(iter(row.values()), None) for row in rows]
            has_both_rows = len(read_values) == 2 and read_values[1] == "end"
            is_same = has_both_rows and _is_kept(value, read_values[0])
            assert is_same, (
                f"{value!r} was read back as {read_values[:1]!r}: what a person wrote becomes "
                "something else; keep it, or raise ToolException"
            )

    @needs("writes")
    async def test_large_table_round_trips_unchanged(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        table = [["name"], *([f"desk {number // 2}"] for number in range(_MANY))]
        before = [list(row) for row in table]
        copy = tmp_path / f"many{path.suffix}"
        copy.write_bytes(await file_format.write({"first": table}))
        assert table == before, "writing changed the rows that it was given"
        rows = await file_format.read(str(copy), None)
        assert len(rows) == _MANY, (
            f"{len(rows)} of {_MANY} rows are left, of which two at a time are equal: keep equal "
            "rows, and raise ToolException rather than truncate a table"
        )

    @needs("writes")
    async def test_uneven_table_is_kept_or_refused(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        file = tmp_path / f"uneven{path.suffix}"
        tables = {
            "a row with a value too few": [["name", "note"], ["desk"]],
            "a row with a value too many": [["name"], ["desk", "lost"]],
            "two columns with one name": [["name", "name"], ["desk", "lost"]],
        }
        for fault, table in tables.items():
            try:
                file.write_bytes(await file_format.write({"first": table}))
            except ToolExecutionError:
                continue
            except Exception as error:
                pytest.fail(f"{fault} raised {type(error).__name__}: raise ToolException")
            content = str(await file_format.read(str(file), None))
            missing_values = [value for value in table[1] if value not in content]
            assert not missing_values, (
                f"{fault}: {missing_values[0]!r} was lost without a word; raise ToolException"
            )

    async def test_use_leaves_the_process_unchanged(self, file_format: Any, path: Path) -> None:
        async def use() -> None:
            await file_format.read(str(path), None)
            await file_format.parts(str(path))

        await self.check_nothing_remains(file_format, use, forbidden_texts=(str(path),))
        gc.collect()
        assert str(path) not in open_files(), (
            f"{path.name} stays open after it was read: a process can open a limited number of "
            "files only"
        )

    @needs("writes")
    async def test_empty_table_is_accepted(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        copy = tmp_path / f"empty{path.suffix}"
        for table in ([["name"]], []):
            try:
                copy.write_bytes(await file_format.write({"first": table}))
                rows = await file_format.read(str(copy), None)
            except ToolExecutionError:
                continue  # the format refuses the table, which is allowed
            except Exception as error:
                pytest.fail(
                    f"the table {table!r} raised {type(error).__name__}: {error}; raise "
                    "ToolException"
                )
            assert rows == [], f"the table {table!r} without rows was read back as {rows!r}"

    @needs("writes")
    async def test_second_table_is_kept_or_refused(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        tables = {"first": [["name"], ["desk"]], "second": [["name"], ["lamp"]]}
        copy = tmp_path / f"two{path.suffix}"
        try:
            copy.write_bytes(await file_format.write(tables))
        except ToolExecutionError:
            return  # the format refuses two tables
        parts = list(await file_format.parts(str(copy)))
        assert len(parts) == len(tables), f"of two tables {parts!r} are left: the other is lost"
        assert set(parts) == set(tables), (
            f"the tables {[*tables]!r} are called {parts!r} in the file: a script that asks for "
            "one by its name would not find it; keep the names, or raise ToolException"
        )
        for part in parts:
            rows = await file_format.read(str(copy), part)
            (row,) = tables[part][1:]
            assert str(rows) == str([{"name": row[0]}]), (
                f"the table {part!r} with the row {row!r} was read back as {rows!r}"
            )

    @needs("writes")
    async def test_time_keeps_its_zone_or_is_refused(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        for offset in _ZONES:
            zoned = _NAIVE.replace(tzinfo=timezone(offset))
            value = await self._round_trip(file_format, tmp_path, path, zoned)
            if value is _REFUSED:
                continue
            moment = _moment_of(value)  # None for "Sat Jan 31 09:00 UTC 2026", which names a zone
            has_zone = _names_zone(value) if moment is None else moment.tzinfo is not None
            assert has_zone, (
                f"{zoned} was read back as {value!r}, which has no zone: each reader takes it "
                "for the time of another zone; keep the zone, or write UTC, or raise ToolException"
            )
            assert moment is None or moment == zoned, (
                f"{zoned} was read back as {value!r}, which is another moment"
            )

    @needs("writes")
    async def test_time_without_a_zone_stays_without_a_zone(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        value = await self._round_trip(file_format, tmp_path, path, _NAIVE)
        moment = None if value is _REFUSED else _moment_of(value)
        if moment is None:
            return  # refused, or stored as a number or as a text that is not in ISO format
        assert moment.tzinfo is None, (
            f"{_NAIVE}, without a zone, was read back as {value!r}: nobody knows its zone"
        )
        assert moment == _NAIVE, f"{_NAIVE} was read back as {value!r}"

    @needs("writes")
    async def test_decimals_are_kept_or_refused(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        value = await self._round_trip(file_format, tmp_path, path, _AMOUNT)
        assert value is _REFUSED or _keeps_amount(value), (
            f"{_AMOUNT} was read back as {value!r}: an amount loses its cents, or can no longer be "
            "added up; keep the digits, or raise ToolException"
        )

    @needs("writes")
    async def test_days_are_kept_or_refused(
        self, file_format: Any, tmp_path: Path, path: Path
    ) -> None:
        day = _NAIVE.date()
        value = await self._round_trip(file_format, tmp_path, path, day)
        moment = None if value is _REFUSED else _moment_of(value)
        if moment is None:
            return  # refused, or stored as a number or as a text that is not in ISO format
        assert moment.date() == day, f"{day} was read back as {value!r}: that is another day"

    async def _round_trip(self, file_format: Any, folder: Path, path: Path, value: object) -> Any:
        """Write a table of one value and return the value as read back; ``_REFUSED`` if refused."""
        copy = folder / f"value{path.suffix}"
        try:
            copy.write_bytes(await file_format.write({"first": [["name"], [value]]}))
        except ToolExecutionError:
            return _REFUSED
        (row,) = await file_format.read(str(copy), None)
        (value_read,) = row.values()
        return value_read


_REFUSED = object()


def _moment_of(value: object) -> datetime | None:
    """Parse a value that was read from a file as a date and time.

    Return None for a number, and for a text that is not in ISO format.
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, (int, float)):
        return None
    # fromisoformat() knows no names of zones, and takes no blank before an offset.
    text = re.sub(r"\s*(UTC|GMT|Z)$", "+00:00", str(value).strip())
    text = re.sub(r"\s+([+-]\d\d:?\d\d)$", r"\1", text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _names_zone(value: object) -> bool:
    """Return True if a value names a time zone, or is a number of seconds since 1970 in UTC."""
    seconds = r"-?\d{9,}(\.\d+)?"
    return re.search(rf"UTC|GMT|\dZ|[+-]\d\d:?\d\d|^{seconds}$", str(value)) is not None


def _keeps_amount(read_value: object) -> bool:
    """Return True if a read value is ``_AMOUNT``, or a text that a person may have written.

    ``1,234,567.85 EUR`` is such a text; ``Decimal('1234567.85')`` is not.
    """
    try:
        return Decimal(str(read_value)) == _AMOUNT
    except InvalidOperation:
        return "Decimal" not in str(read_value)


def _is_kept(value: object, read_value: object) -> bool:
    """Return True if a format read a written value back correctly.

    A text format may return a number, a boolean or an empty cell as text.
    """
    if type(read_value) is type(value):
        return read_value == value
    if isinstance(value, str):
        return False
    if value is None:
        return read_value in ("", "null")
    return read_value in (str(value), json.dumps(value))


def _middle_of_a_line(content: bytes) -> int:
    """Return an index within a line, near the middle of a file.

    A file cut there ends with a part of a line, so that a reader can notice the cut.
    """
    middle = len(content) // 2
    while middle > 1:
        is_after_newline = content[middle - 1 : middle] == b"\n"
        is_before_newline = content[middle : middle + 1] == b"\n"
        if not is_after_newline and not is_before_newline:
            break
        middle -= 1
    return middle
