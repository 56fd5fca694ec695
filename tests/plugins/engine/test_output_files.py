"""Tests that output files are written atomically, in order, and never over an existing file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delf import Agent, CallContext, tool
from delf.errors import ConfigurationError, ToolExecutionError
from delf.events import FileWritten
from delf.specs import FormatSpec
from delf.values.encoding import dumps
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_engine.formats import Formats
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.journal.log import TaskLog
from delf_engine.output import OutputFiles, OutputFolder, check_output_folder


def test_existing_file_is_never_overwritten(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    (tmp_path / "README-2.md").symlink_to("/nowhere")
    folder = OutputFolder(str(tmp_path))
    path = folder.write("README.md", b"one")
    assert path == str(tmp_path / "README-3.md")
    assert folder.write("README.md", b"two") == path
    assert (tmp_path / "README.md").read_text() == "mine"
    assert (tmp_path / "README-3.md").read_text() == "two"
    assert folder.files == {"README.md": path}


def test_resumed_task_replaces_its_own_file(tmp_path):
    first = OutputFolder(str(tmp_path)).write("a.csv", b"one")
    second = OutputFolder(None, file_names={"a.csv": first})
    assert second.write("a.csv", b"two") == first
    assert os.listdir(tmp_path) == ["a.csv"]


def test_file_written_just_before_a_crash_is_not_duplicated(tmp_path):
    first = OutputFolder(str(tmp_path)).write("a.csv", b"one")
    start = Path(first).stat().st_mtime - 1
    assert OutputFolder(str(tmp_path), since=start).write("a.csv", b"one") == first
    assert OutputFolder(str(tmp_path), since=start).write("a.csv", b"two") != first
    assert sorted(os.listdir(tmp_path)) == ["a-2.csv", "a.csv"]


def test_equal_file_from_before_a_resumed_task_is_not_overwritten(tmp_path):
    first = OutputFolder(str(tmp_path)).write("a.csv", b"one")
    resumed = OutputFolder(str(tmp_path), since=Path(first).stat().st_mtime + 1)
    resumed.write("a.csv", b"one")
    resumed.write("a.csv", b"two")
    assert Path(first).read_bytes() == b"one"
    assert resumed.files == {"a.csv": str(tmp_path / "a-2.csv")}


async def test_unexpected_writer_error_is_reported_as_a_problem(
    delf_host: TestHost, tmp_path: Path
) -> None:
    class Broken:
        async def write(self, parts: object) -> bytes:
            raise RuntimeError("as ever")

    delf_host.provide(
        FormatSpec(name="broken", factory="x:y", summary="x", endings=(), writes=(".brk",)), Broken
    )
    log = TaskLog("task_1", InProcessJournal(), ())
    files = OutputFiles(OutputFolder(str(tmp_path)), Formats(delf_host), log)
    files.start_writing("a.brk", dumps({"sheet": [[1]]}), is_rows=True)
    assert await files.failures() == ["'a.brk' cannot be made: RuntimeError: as ever"]


def test_names_differing_by_case_or_normalisation_stay_distinct(tmp_path):
    folder = OutputFolder(str(tmp_path))
    assert folder.write("Report.csv", b"1") == str(tmp_path / "Report.csv")
    assert folder.write("report.CSV", b"2") == str(tmp_path / "report-2.CSV")
    composed, decomposed = "caf\u00e9.txt", "cafe\u0301.txt"
    assert folder.write(decomposed, b"1") == folder.write(composed, b"2")
    assert (tmp_path / composed).read_bytes() == b"2"
    assert set(folder.files) == {"Report.csv", "report.CSV", composed}


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
def test_output_file_mode_follows_the_umask(tmp_path, mask, mode):
    code = (
        "import os, sys; from delf_engine.output import OutputFolder; "
        f"os.umask({mask}); OutputFolder({str(tmp_path)!r}).write('a.csv', b'1')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "a.csv").stat().st_mode & 0o777 == mode


def test_output_folder_replaced_by_a_link_is_not_followed(tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    folder = OutputFolder(str(out))
    folder.write("a/b.txt", b"1")
    (out / "a").rename(tmp_path / "before")
    (out / "a").symlink_to(other)
    with pytest.raises(ValueError, match="leaves the output folder"):
        folder.write("a/b.txt", b"2")
    assert list(other.iterdir()) == []


def test_link_inside_the_output_folder_is_not_followed(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/link").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="leaves the output folder"):
        OutputFolder(str(tmp_path / "out")).write("link/new/a", b"x")
    assert sorted(os.listdir(tmp_path)) == ["out"]


def test_failed_write_leaves_no_partial_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(OSError, match="No space"):
        OutputFolder(str(tmp_path)).write("a", b"x")
    assert os.listdir(tmp_path) == []


def test_output_files_are_numbered_where_links_fail(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", unsupported)
    (tmp_path / "a").write_text("mine")
    assert OutputFolder(str(tmp_path)).write("a", b"x") == str(tmp_path / "a-2")
    assert (tmp_path / "a").read_text() == "mine"
    assert (tmp_path / "a-2").read_text() == "x"


@pytest.mark.parametrize("name", ["file", "file/below", "a\0b"])
def test_unusable_output_folder_is_reported_at_start(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="output folder"):
        check_output_folder(str(tmp_path / name))


def test_missing_output_folder_is_accepted_and_not_created(tmp_path):
    check_output_folder(str(tmp_path / "a/b"))
    check_output_folder(None)
    assert os.listdir(tmp_path) == []


# -- in a task ------------------------------------------------------------------------------


class Counting:
    """A format that writes the number of rows."""

    async def parts(self, path):
        return []

    async def read(self, path, part):
        return []

    async def write(self, parts):
        if "bad" in parts:
            raise ToolExecutionError("these rows do not fit")
        return b",".join(b"%s:%d" % (name.encode(), len(rows)) for name, rows in parts.items())


@pytest.fixture
def taking(tmp_path):
    host = TestHost.discover(no_plugins=True, environ={})
    spec = FormatSpec(name="n", summary="", factory="a:b", endings=(), writes=(".n",))
    host.provide(spec, Counting)
    log = TaskLog("task_1", InProcessJournal(), [])
    files = OutputFiles(OutputFolder(str(tmp_path)), Formats(host), log)
    return files, log


async def test_files_are_written_in_order_and_recorded(taking, tmp_path):
    files, log = taking
    for number in range(20):
        files.start_writing("a.txt", b"x" * number)
    assert await files.failures() == []
    assert (tmp_path / "a.txt").read_bytes() == b"x" * 19
    assert [event.size for event in log.events if isinstance(event, FileWritten)] == [*range(20)]
    assert files.files == {"a.txt": str(tmp_path / "a.txt")}


async def test_rows_are_written_by_the_format_plugin_of_the_suffix(taking, tmp_path):
    files, _ = taking
    files.start_writing("a.n", dumps({"Sheet1": [["a"], [1]], "More": []}), is_rows=True)
    assert await files.failures() == []
    assert (tmp_path / "a.n").read_bytes() == b"Sheet1:2,More:0"


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("a.n", dumps({"bad": []}), "'a.n': these rows do not fit"),
        (
            "a.n",
            b'{"a":[' + b"[]," * 4_000_000 + b"[]]}",
            "'a.n' cannot be written: its rows have more than 5,000,000 values",
        ),
        ("a.n", dumps([1]), "'a.n' cannot be written: its rows are malformed"),
        ("a.n", dumps({"a": [{"b": 1}]}), "'a.n' cannot be written: its rows are malformed"),
        ("a.n", b"{", "'a.n' cannot be written: "),
        ("a.m", dumps({"a": []}), "'a.m': no plugin makes .m files"),
    ],
)
async def test_unwritable_output_is_reported_once(taking, tmp_path, name, data, problem):
    files, log = taking
    files.start_writing(name, data, is_rows=True)
    (message,) = await files.failures()
    assert message.startswith(problem)
    assert await files.failures() == []
    assert (log.events, files.files, os.listdir(tmp_path)) == ([], {}, [])


async def test_output_files_of_a_task_have_a_total_limit(
    delf_host: TestHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delf_engine.output.MAX_TOOL_FILE_BYTES", 10)
    log = TaskLog("task_1", InProcessJournal(), ())
    files = OutputFiles(OutputFolder(str(tmp_path)), Formats(delf_host), log)
    for name, size in (("a.txt", 4), ("b.txt", 4), ("c.txt", 4), ("d.txt", 2)):
        files.start_writing_tool_file(name, bytes(size))
    (problem,) = await files.failures()
    assert "'c.txt' is not kept" in problem
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "b.txt", "d.txt"]


@pytest.mark.parametrize("plain", [False, True])
def test_action_adds_files_to_its_task(plain: bool, delf_host: TestHost) -> None:
    def paint(context: CallContext) -> str:
        context.add_output_file("lamp.png", b"\x89PNG")
        return "painted"

    async def paint_soon(context: CallContext) -> str:
        return paint(context)

    model = ScriptedModel()
    delf_host.provide(model.spec, model.factory)
    call = "paint()" if plain else "await paint_soon()"
    model.writes(f"print({call})")
    made = tool(paint if plain else paint_soon, confirm=False)
    with Agent(tools=[made], llm="scripted", host=delf_host) as agent:
        response = agent.run("Paint.")
    assert response.text == "painted"
    assert Path(response.files["lamp.png"]).read_bytes() == b"\x89PNG"
