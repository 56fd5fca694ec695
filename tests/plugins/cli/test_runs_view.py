"""How events look on a terminal."""

from datetime import UTC, datetime

from delf import events as ev
from delf_plugin_cli import runs_view


def test_an_event_in_a_line_has_values_as_python_has_them():
    when = datetime(2026, 1, 2, tzinfo=UTC)
    event = ev.CallFinished(
        task_id="t", seq=1, at=1.0, call_id=1, action="when", status="ok", duration_ms=0.1325869997,
        result={"at": when, "raw": b"abc"},
    )  # fmt: skip
    line = runs_view.event_line(event, 0.0)
    assert f"duration_ms=0.132587 result={{'at': {when!r}, 'raw': b'abc'}}" in line
    assert "$" not in line
