"""How events look on a terminal."""

from datetime import UTC, datetime

from delf import events as ev
from delf_console import runs_view
from delf_engine.views.records import ToolCallTrace


def test_an_event_in_a_line_has_values_as_python_has_them():
    when = datetime(2026, 1, 2, tzinfo=UTC)
    event = ev.CallFinished(
        task_id="t", seq=1, at=1.0, call_id=1, action="when", status="ok", duration_ms=0.1325869997,
        result={"at": when, "raw": b"abc"},
    )  # fmt: skip
    line = runs_view.event_line(event, 0.0)
    assert f"duration_ms=0.132587 result={{'at': {when!r}, 'raw': b'abc'}}" in line
    assert "$" not in line


def test_origins_of_a_call_are_lines_by_their_source():
    told = {"text": "from mail.read (call 1, sender); others wrote it"}
    paths = [f"to[{number}]" for number in range(7)]
    origins = {**dict.fromkeys(paths, told), "sum": {"text": "in your\x1b[2J task"}}
    lines = [*runs_view.origin_lines(ToolCallTrace(call_id=2, name="mail.send", origins=origins))]
    assert lines == [
        f"   2  mail.send to[0], to[1], to[2], to[3], to[4] and 2 more: {told['text']}",
        "   2  mail.send sum: in your\\x1b[2J task",
    ]
