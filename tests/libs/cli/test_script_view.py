"""Tests of the view of a script, with the calls of each line and the failed line."""

from delf import events as ev
from delf_cli.script_view import script_lines, scripts_of, summarise_script

CODE = "rows = await shop.query('SELECT 1')\nfor row in rows:\n    await shop.look(row)\nprint(row.nme)"


def event(kind, seq, **fields):
    return kind(task_id="task_1", seq=seq, at=float(seq), **fields)


def call(number, line, action="shop.look", status="ok"):
    common = {"call_id": number, "action": action}
    yield event(
        ev.CallStarted, number, **common, arguments={"n": 1}, effect="read", digest="", line=line
    )
    yield event(ev.CallFinished, number, **common, status=status, duration_ms=12.0)


def course(code=CODE, at=4, calls=5):
    yield event(ev.ScriptGenerated, 1, code=code, attempt=1)
    yield from call(1, 1, "shop.query")
    for number in range(2, 2 + calls):
        yield from call(number, 3)
    yield event(ev.Printed, 90, text="half\n")
    error = "Traceback …\nAttributeError: no attribute 'nme'"
    yield event(
        ev.ScriptFinished, 91, status="failed", duration_ms=5.0, error=error, line=at, attempt=1
    )


def lines(events, **options):
    scripts = scripts_of(events)
    return list(script_lines(scripts[-1], total=len(scripts), **options))


def test_script_view_shows_calls_and_error_below_their_lines():
    assert lines(course()) == [
        "script 1, failed",
        "    1  rows = await shop.query('SELECT 1')",
        "       → shop.query · (n=1) · ok, 12 ms",
        "    2  for row in rows:",
        "    3      await shop.look(row)",
        *["       → shop.look · (n=1) · ok, 12 ms"] * 3,
        "       → and 2 more calls",
        ">   4  print(row.nme)",
        "       AttributeError: no attribute 'nme'",
        "  | half",
    ]


def rejected_call(number, line, status="rejected", **fields):
    common = {"call_id": number, "action": "shop.pay"}
    request = {"request_id": f"req_{number}", "effect": "write", "digest": "", **fields}
    yield event(ev.ApprovalRequested, number, **common, **request, arguments={"n": 2}, line=line)
    yield event(ev.CallFinished, number, **common, status=status, duration_ms=0.0)


def test_rejected_call_stands_below_its_line_with_its_purpose():
    events = [
        event(ev.ScriptGenerated, 1, code=CODE, attempt=1),
        *rejected_call(1, 1),
        *rejected_call(2, 3, description="pay Ann"),
    ]
    assert lines(events) == [
        "script 1",
        "    1  rows = await shop.query('SELECT 1')",
        "       → shop.pay · (n=2) · rejected, 0 ms",
        "    2  for row in rows:",
        "    3      await shop.look(row)",
        "       → shop.pay · pay Ann · rejected, 0 ms",
        "    4  print(row.nme)",
    ]


def test_call_refused_before_a_question_stands_below_its_line():
    refused = {"call_id": 1, "action": "shop.pay", "status": "refused", "duration_ms": 0.0}
    for line, position in ((1, 2), (None, -1)):
        events = [
            event(ev.ScriptGenerated, 1, code=CODE, attempt=1),
            event(ev.CallFinished, 2, **refused, description="pay Ann", line=line),
        ]
        assert lines(events)[position] == "       → shop.pay · pay Ann · refused, 0 ms"


def test_script_view_shows_error_of_a_removed_empty_line():
    # Python reports a block without statements at the end of the file.
    assert lines(course("if True:\n\n\n\n", at=4, calls=0)) == [
        "script 1, failed",
        ">   1  if True:",
        "       → shop.query · (n=1) · ok, 12 ms",
        "       AttributeError: no attribute 'nme'",
        "  | half",
    ]


def test_script_view_of_a_failure_shows_surrounding_lines():
    code = "\n".join(f"x{n} = {n}" for n in range(1, 101))
    shown = lines(course(code, at=50, calls=0), whole_script=False)
    assert shown[1] == "      … 41 lines before"
    assert ">  50  x50 = 50" in shown
    assert shown[-1].strip().startswith("→") or shown[-1] == "      … 42 lines after"
    assert len(shown) < 25
    assert len(lines(course(code, at=50, calls=0))) > 100


def test_script_view_fits_the_terminal_and_keeps_indentation():
    code = "if True:\n    " + "x = 1; " * 40
    shown = lines(course(code, at=2), width=80)
    assert max(map(len, shown)) == 80
    assert shown[4].startswith(">   2      x = 1;") or any(
        line.startswith(">   2      x = 1;") for line in shown
    )


def test_script_view_includes_an_unfinished_script():
    begun = [event(ev.ScriptGenerated, 1, code="await hold()", attempt=1)]
    assert lines(begun) == ["script 1", "    1  await hold()"]
    assert summarise_script("a\nb\n", 2) == "script 2 · 2 lines"
