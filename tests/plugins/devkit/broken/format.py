"""File formats that break one thing each."""

import asyncio
import json
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from planting import planting

from delf.errors import ToolException
from delf.testing import FormatContract

TEXT = "stock\nname=desk\nname=lamp\n"


class Good:
    """A format with the table's name on the first line, then one row per line."""

    def lines(self, path):
        try:
            return Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ToolException(f"{Path(path).name} cannot be read") from error

    async def parts(self, path):
        return self.lines(path)[:1]

    async def read(self, path, part):
        first, *rows = self.lines(path)
        if part not in (None, first):
            raise ToolException(f"there is no {part}")
        if not all("=" in row for row in rows):
            raise ToolException(f"{Path(path).name} is damaged")
        return [dict([row.split("=")]) for row in rows]

    async def write(self, parts):
        if len(parts) > 1 or not all(parts.values()):
            raise ToolException("one table with a head can be written")
        ((name, (head, *rows)),) = parts.items()
        if any(len(row) != 1 or set("=\n") & set(str(row[0])) for row in (head, *rows)):
            raise ToolException("such a table cannot be written")
        if any(row[0] is None for row in rows):
            raise ToolException("nothing cannot be written")
        return "\n".join([name, *(f"{head[0]}={row[0]}" for row in rows)]).encode()


class Suite(FormatContract):
    detects_truncation = False
    rows = ({"name": "desk"}, {"name": "lamp"})
    writes = True
    kind = Good

    @pytest.fixture
    def file_format(self):
        return self.kind()

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "stock.fix"
        path.write_text(TEXT)
        return path


breaks = planting(Suite)


class TestGood(Suite):
    pass


class Lines(Good):
    """A format with one row per line, as JSON."""

    async def read(self, path, part):
        return [json.loads(line) for line in self.lines(path)[1:]]

    async def write(self, parts):
        if len(parts) > 1 or not all(parts.values()):
            raise ToolException("one table with a head can be written")
        ((name, (head, *rows)),) = parts.items()
        made = [json.dumps(self.row(zip(head, row, strict=True))) for row in rows]
        return "\n".join([name, *made]).encode()

    def row(self, values):
        return dict(values)


@breaks("test_column_names_round_trip", says="keep them, or raise")
class TestLowersNames(Lines):
    def row(self, values):
        return {name.lower(): value for name, value in values}


@breaks("test_values_keep_their_type", says="a column is missing from the row")
class TestLeavesNoneOut(Lines):
    def row(self, values):
        return {name: value for name, value in values if value is not None}


@breaks("test_values_with_delimiters_round_trip", says="'=1+1' is not kept")
class TestEscapesFormulas(Lines):
    def row(self, values):
        return {name: f"'{v}" if str(v).startswith("=") else v for name, v in values}


@breaks("test_unreadable_file_raises", says="it raises 'error'")
class TestSaysNothing(Good):
    def lines(self, path):
        try:
            return super().lines(path)
        except ToolException:
            raise ToolException("error") from None


class TestGoodWithoutParts(Suite):
    class kind(Good):
        async def parts(self, path):
            return ()


@breaks("test_format_reads_rows", "test_concurrent_reads_are_independent")
class TestLosesARow(Good):
    async def read(self, path, part):
        return (await super().read(path, part))[1:]


@breaks("test_format_reads_a_part_by_name")
class TestNamesAPartTwice(Good):
    async def parts(self, path):
        return [*(await super().parts(path)), "stock"]


@breaks("test_format_reads_a_part_by_name")
class TestReadsWhateverIsAskedFor(Good):
    async def read(self, path, part):
        return await super().read(path, None)


@breaks("test_unreadable_file_raises")
class TestFailsInItsOwnWay(Good):
    def lines(self, path):
        return Path(path).read_text().splitlines()


@breaks("test_concurrent_reads_are_independent", says="not in `self`")
class TestKeepsItsFileInSelf(Good):
    async def read(self, path, part):
        self.path = path
        await asyncio.sleep(0)
        return await super().read(self.path, part)


@breaks("test_concurrent_writes_are_independent", says="are mixed up")
class TestKeepsItsTableInSelf(Good):
    async def write(self, parts):
        self.parts_now = parts
        await asyncio.sleep(0)
        return await super().write(self.parts_now)


@breaks("test_format_reads_rows")
class TestHoldsTheLoop(Good):
    async def read(self, path, part):
        time.sleep(0.3)
        return await super().read(path, part)


@breaks("test_reader_reads_written_files")
class TestWritesNothing(Good):
    async def write(self, parts):
        return b"stock\n"


class TestQuotesNothing(Suite):
    breaks = ("test_values_with_delimiters_round_trip",)
    says = "quote it, or raise ToolException"
    rows = ({"name": "desk", "note": "a"}, {"name": "lamp", "note": "b"})

    class kind:
        async def parts(self, path):
            return ()

        async def read(self, path, part):
            try:
                text = Path(path).read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise ToolException(f"{Path(path).name} cannot be read") from error
            first, *rows = (line.split(",") for line in text.splitlines())
            return [dict(zip(first, row, strict=False)) for row in rows]

        async def write(self, parts):
            ((_, rows),) = parts.items()
            return "\n".join(",".join(map(str, row)) for row in rows).encode()

    @pytest.fixture
    def path(self, tmp_path):
        path = tmp_path / "stock.csv"
        path.write_text("name,note\ndesk,a\nlamp,b\n")
        return path


@breaks("test_invalid_content_raises", says="would count as empty")
class TestReadsGarbageAsNothing(Good):
    def lines(self, path):
        try:
            return super().lines(path)
        except ToolException:
            if not Path(path).is_file():
                raise
            return ["stock"]


@breaks("test_invalid_content_raises", says="raise ToolException")
class TestRaisesItsParsersError(Good):
    def lines(self, path):
        try:
            return Path(path).read_text().splitlines()
        except OSError as error:
            raise ToolException(f"{Path(path).name} cannot be read") from error


@breaks("test_empty_table_is_accepted", says="raised ValueError")
class TestCannotWriteNothing(Good):
    async def write(self, parts):
        ((_name, (_head, *_rows)),) = parts.items()
        return await super().write(parts)


@breaks("test_empty_table_is_accepted", says="was read back as")
class TestReadsTheHeadAsARow(Good):
    async def write(self, parts):
        ((name, table),) = parts.items()
        return await super().write({name: table if table[1:] else [*table, *table]})


@breaks("test_second_table_is_kept_or_refused", says="the other is lost")
class TestWritesTheFirstTableOnly(Good):
    async def write(self, parts):
        return await super().write(dict([*parts.items()][:1]))


@breaks(
    "test_time_keeps_its_zone_or_is_refused",
    says="each reader takes it for the time of another zone",
)
class TestDropsTheZone(Good):
    async def write(self, parts):
        def plain(value):
            return value.replace(tzinfo=None) if isinstance(value, datetime) else value

        tables = {n: [[plain(v) for v in row] for row in table] for n, table in parts.items()}
        return await super().write(tables)


@breaks(
    "test_truncated_file_raises",
    says="half a table would count as the whole",
    detects_truncation=True,
)
class TestReadsUpToTheDamage(Good):
    async def read(self, path, part):
        first, *rows = self.lines(path)
        if part not in (None, first):
            raise ToolException(f"there is no {part}")
        return [dict([row.split("=")]) for row in rows if "=" in row]


@breaks("test_values_keep_their_type", says="becomes something else")
class TestReadsNumbersFromTexts(Good):
    async def read(self, path, part):
        rows = await super().read(path, part)
        return [{k: int(v) if v.isdigit() else v for k, v in row.items()} for row in rows]


@breaks("test_large_table_round_trips_unchanged", says="1000 of 2500 rows are left")
class TestReadsAThousandRows(Good):
    async def read(self, path, part):
        return (await super().read(path, part))[:1_000]


@breaks("test_uneven_table_is_kept_or_refused", says="was lost without a word")
class TestDropsWhatIsTooMuch(Good):
    async def write(self, parts):
        return await super().write(
            {name: [row[: len(table[0])] for row in table] for name, table in parts.items()}
        )


@breaks("test_use_leaves_the_process_unchanged", says="stays open after")
class TestLeavesTheFileOpen(Good):
    def __init__(self):
        self.files = []

    async def read(self, path, part):
        self.files.append(open(path))  # noqa: SIM115
        return await super().read(path, part)


@breaks("test_damaged_text_raises", says="would look like a value")
class TestReplacesWhatIsNoText(Good):
    def lines(self, path):
        try:
            return Path(path).read_text(errors="replace").splitlines()
        except OSError as error:
            raise ToolException(f"{Path(path).name} cannot be read") from error


@breaks("test_unreadable_file_raises", says="DID NOT RAISE")
class TestReadsEachFileOnce(Good):
    def __init__(self):
        self.read_lines = {}

    def lines(self, path):
        if path not in self.read_lines:
            self.read_lines[path] = super().lines(path)
        return self.read_lines[path]


def changing(change):
    """Return a format that changes values when it writes them."""

    class Changing(Good):
        async def write(self, parts):
            tables = {n: [[change(v) for v in row] for row in t] for n, t in parts.items()}
            return await super().write(tables)

    return Changing


@breaks("test_time_without_a_zone_stays_without_a_zone", says="nobody knows its zone")
class TestInventsAZone(
    changing(lambda v: v.replace(tzinfo=v.tzinfo or UTC) if isinstance(v, datetime) else v)
):
    pass


@breaks("test_decimals_are_kept_or_refused", says="loses its cents")
class TestRoundsDecimals(changing(lambda v: round(v) if isinstance(v, Decimal) else v)):
    pass


@breaks("test_days_are_kept_or_refused", says="is another day")
class TestWritesTheDayBefore(changing(lambda v: v - timedelta(days=1) if type(v) is date else v)):
    pass
