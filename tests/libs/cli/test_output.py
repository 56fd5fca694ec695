import json
import re
import sys
import time
from decimal import Decimal

import pytest

from delf import events as ev
from delf.errors import DelfError
from delf_cli import output
from delf_engine.response import Response


def strict(text: str) -> object:
    """Parse JSON as other languages do, where NaN is not a number."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text.encode(), parse_constant=refuse)


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"a": float("nan"), "b": [float("inf")]}, {"a": "nan", "b": ["inf"]}),
        ("half a pair: \ud800", "half a pair: \ud800"),
        ("grün 🍵", "grün 🍵"),
        ([Odd(), re.compile("x")], ["<odd>", "re.compile('x')"]),
        ({1: (1, 2)}, {"1": [1, 2]}),
        (Decimal("1.5"), {"$t": "decimal", "v": "1.5"}),
    ],
)
def test_json_text_is_valid_for_any_value(value, wanted):
    assert strict(output.json_text(value)) == wanted


@pytest.mark.parametrize(
    "hidden", ["\x9b2J", "\u202e", "\u200b", "\u2028", "\x7f", "\ufeff", "\u3164", "\U000e0101"]
)
def test_json_text_shows_no_hidden_character(hidden):
    text = output.json_text({hidden: [f"grün {hidden}"]})
    assert hidden[0] not in text
    assert "grün" in text
    assert strict(text) == {hidden: [f"grün {hidden}"]}


def test_json_text_of_a_recursive_list_is_valid():
    nest: list[object] = []
    nest.append(nest)
    assert strict(output.json_text(nest))


@pytest.mark.parametrize("result", [float("nan"), Odd(), "\ud800", {"a": {1, 2}}])
def test_event_is_written_as_one_json_line(result):
    event = ev.CallFinished(
        task_id="t", seq=1, at=1.0, call_id=1, action="a", status="ok", duration_ms=1, result=result
    )
    line = output.event_line(event)
    assert "\n" not in line
    record = strict(line)
    assert (record["type"], record["seq"], record["data"]["action"]) == ("CallFinished", 1, "a")


FIELDS = [
    "text",
    "value",
    "status",
    "state",
    "error",
    "code",
    "hint",
    "cost_usd",
    "duration_ms",
    "files",
    "used_tools",
    "changes",
    "trace",
]


@pytest.mark.parametrize("value", [1, float("inf"), Odd()])
def test_response_is_written_as_one_json_object(value):
    head = {"task_id": "t", "at": 1.0}
    response = Response(
        text="x",
        status=True,
        events=[
            ev.TaskStarted(seq=1, task="x", **head),
            ev.CallStarted(
                seq=2,
                call_id=1,
                action="a",
                arguments={"v": value},
                effect="read",
                digest="d",
                **head,
            ),
            ev.CallFinished(
                seq=3, call_id=1, action="a", status="ok", duration_ms=1.0, result=value, **head
            ),
        ],
    )
    data = strict(output.response_json(response))
    assert list(data) == FIELDS
    assert data["trace"]["tool_calls"][0]["name"] == "a"


def test_json_of_a_task_that_never_started_has_all_fields():
    data = strict(output.failure_json(DelfError("no", hint="do")))
    assert list(data) == FIELDS
    assert [data[name] for name in ("error", "code", "hint")] == ["no", DelfError.code, "do"]


@pytest.mark.parametrize("text", ["x", "x\n", "| a |\n|---|\n| 1 |\n"])
def test_piped_answer_is_unchanged(capsys, text):
    output.show_answer(text)
    assert capsys.readouterr().out == text.rstrip("\n") + "\n"


def test_answer_with_only_a_link_is_rendered(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.show_answer("See [this](https://a.example/b_(c)).")
    assert "](" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "piece", ["**a ", "[a](b", "[a]((b)", "[a", "word ", "| a | b |\n", "- a b\n"]
)
@pytest.mark.parametrize("size", [90_000, 2_000_000])
def test_long_answer_is_shown_at_a_terminal_soon(capsys, monkeypatch, piece, size):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = (piece * size)[:size]
    began = time.process_time()
    output.show_answer(text)
    assert time.process_time() - began < 5
    assert capsys.readouterr().out.strip()
