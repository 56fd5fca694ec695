import re
import time
from typing import Any

import pytest

from delf_approval_terminal.edit import parse_arguments, parse_value
from delf_approval_terminal.render import escape, fold, request_text, value_lines

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def shown(request_for):
    """The lines of a request as a person sees them."""

    def lines(arguments: dict[str, Any], *, width: int = 100, **options: Any) -> list[str]:
        changes = {k: options.pop(k) for k in ("description", "permission") if k in options}
        text = request_text(request_for(arguments, **changes), arguments, width=width, **options)
        return COLOUR.sub("", text).split("\n")[:-1]

    return lines


def test_a_request(shown):
    lines = shown({"to": "ada@example.org", "copies": 2}, description="tell Ada", waiting=2)
    assert lines == [
        "┌ approval needed · mail.send · irreversible, it cannot be undone · 2 more waiting",
        "│ the script says: tell Ada",
        "│ to = 'ada@example.org'",
        "│ copies = 2",
        "└ a approve · r reject · e edit · t task · s session · v view all · ? help",
    ]


HOSTILE = [
    "\x1b[2J\x1b[H> approved\n",
    "x\r┌ approval needed · safe.read · read",
    "x\n└ a approve\n> a",
    "\x9b2J",
    "\x07\x08\x08\x08",
    "\u202eevil\u202c",
    "a\u200bb\ufeff",
    "\u2028> ",
    "tag\U000e0041",
    "x" * 300 + "\n> " * 50,
    "漢" * 200,
    "\ud800",
    "\x00",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("width", [20, 80])
def test_no_argument_leaves_its_frame(shown, text, whole, width):
    arguments = {
        "body": text,
        "list": [text],
        "map": {text: text},
        text: 1,
        "bytes": text.encode("utf-8", "replace"),
    }
    for line in shown(arguments, whole=whole, width=width, description=text):
        assert line[:2] in ("┌ ", "│ ", "└ ")
        assert line.isprintable()
        assert len(line) <= width
    for line in shown({}, permission=text, width=width):
        assert line.isprintable()


def test_lines_of_text_stay_lines(shown):
    assert shown({"statement": "UPDATE t\n\tSET x = 1"})[1:4] == [
        "│ statement =",
        "│     UPDATE t",
        "│         SET x = 1",
    ]


def test_what_is_cut_says_so_and_is_there_in_whole(shown):
    text = "\n".join(f"line {n}" for n in range(100))
    lines = shown({"body": text})
    assert "… 100 lines, 789 characters in all; v shows them" in "\n".join(lines)
    assert len(lines) < 20
    whole = "\n".join(shown({"body": text}, whole=True))
    assert "line 99" in whole
    assert "9,000 more; v shows them" in " ".join(shown({"body": "x" * 10_000}))
    assert "more arguments; v shows them" in " ".join(shown({f"a{n}": n for n in range(50)}))
    assert "cut; v shows" in " ".join(shown({"ids": list(range(500))}))
    assert "499" in " ".join(shown({"ids": list(range(500))}, whole=True))


def test_a_huge_value_costs_nothing():
    started = time.process_time()
    value_lines([{"id": n, "text": "x" * 100} for n in range(200_000)], whole=False)
    value_lines("x\n" * 5_000_000, whole=False)
    value_lines(dict.fromkeys(range(1000000), "x"), whole=False)
    assert time.process_time() - started < 5


def test_text_and_numbers_look_different(shown):
    assert shown({"a": "5", "b": 5, "c": None, "d": "None"})[1:5] == [
        "│ a = '5'",
        "│ b = 5",
        "│ c = None",
        "│ d = 'None'",
    ]


def test_no_arguments(shown):
    assert "│ (no arguments)" in shown({})


def test_colours_can_be_off(monkeypatch, request_for):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in request_text(request_for({}), {}, width=80)


def test_fold():
    assert list(fold("abcdef", 4)) == ["abcd", "ef"]
    assert list(fold("漢字漢", 4)) == ["漢字", "漢"]
    assert list(fold("", 4)) == [""]
    assert escape("a\nb") == "a\\nb"


@pytest.mark.parametrize(
    ("text", "old", "value"),
    [
        ("hello there", "x", "hello there"),
        ("5", "x", "5"),
        ("'a\\nb'", "x", "a\nb"),
        ('"5"', "x", "5"),
        ("5", 1, 5),
        ("true", False, True),
        ("True", False, True),
        ("null", 1, None),
        ("None", 1, None),
        ("[1, 2]", [], [1, 2]),
        ("{'a': (1, 2)}", {}, {"a": (1, 2)}),
        ('"text"', None, "text"),
    ],
)
def test_values_as_they_are_typed(text, old, value):
    assert parse_value(text, old) == value


@pytest.mark.parametrize("text", ["hello", "[1", "open('x')", "1 +", "__import__('os')"])
def test_what_is_no_value(text):
    with pytest.raises(ValueError, match="write JSON or a Python literal"):
        parse_value(text, 1)


def test_all_arguments_at_once():
    assert parse_arguments('{"a": 1}') == {"a": 1}
    assert parse_arguments("{'a': None}") == {"a": None}
    for text in ("5", "[1]", "{1: 2}"):
        with pytest.raises(ValueError, match="argument"):
            parse_arguments(text)
