import re
import time
from typing import Any

import pytest

from delf.values.encoding import MAX_DEPTH
from delf_approval_terminal.render import request_text, value_part
from support.shown import SHOWN

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def shown(request_for: Any):
    """Return the lines of a request as a person sees them."""

    def lines(arguments: dict[str, Any], *, width: int = 100, **options: Any) -> list[str]:
        of_request = ("description", "permission", "script", "because", "changes", "made_before")
        changes = {k: options.pop(k) for k in of_request if k in options}
        text = request_text(request_for(arguments, **changes), arguments, width=width, **options)
        return COLOUR.sub("", text).split("\n")[:-1]

    return lines


def test_request_is_rendered_in_full(shown: Any):
    lines = shown({"to": "ada@example.org", "copies": 2}, description="tell Ada", waiting=2)
    assert lines == [
        "┌ May mail.send be called? · ● cannot be undone · 2 more waiting",
        "│ task: a task",
        "│ the script says: tell Ada",
        "│ to = 'ada@example.org'",
        "│ copies = 2",
        "└ a approve · r reject · e edit · A every mail.send in this task · v view all · ? help",
    ]


def test_omitted_defaults_are_shown_with_values(request_for: Any):
    request = request_for({"to": "ada"}, defaults={"to": "all", "bcc": "eve", "text": "x" * 5_000})
    lines = COLOUR.sub("", request_text(request, request.arguments, width=200)).split("\n")
    assert "│ to = 'ada'" in lines
    assert "│ bcc (left out by the script) = 'eve'" in lines
    assert not any("'all'" in line for line in lines)
    assert "4,000 characters unseen" in lines[-2]
    edited = request_text(request, {"to": "ada", "bcc": "me"}, width=200, edited=True)
    assert "bcc = 'me'" in edited
    assert "'eve'" not in edited


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
def test_rendered_arguments_stay_inside_their_frame(shown: Any, text: Any, whole: Any, width: Any):
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
    assert [line[0] for line in shown(arguments, whole=whole, width=width)].count("└") == 1
    for line in shown({}, permission=text, width=width):
        assert line.isprintable()


@pytest.mark.parametrize("whole", [False, True])
def test_rendered_padding_cannot_imitate_another_line(shown: Any, whole: Any):
    real = "eve@far.example"
    padded = "ann@us.example" + " " * 82 + "│ to = 'landlord@example.org'" + " " * 200
    lines = shown({"note": padded, "to": real}, width=100, whole=whole)
    assert sum(line.startswith("│ to = ") for line in lines) == 1
    painted = [line for line in lines if "landlord" in line]
    assert all(line.startswith("│     ") for line in painted)
    assert all(line.count("│") == 1 for line in lines if line.startswith("│"))
    assert f"│ note ({len(padded):,} characters) = " in "\n".join(lines)


def test_script_comment_cannot_imitate_code(request_for: Any):
    code = f"pay(9)\n# small\u2028assert n <= 100\n# large{' ' * 80}assert n <= 100\npay(8)"
    asked = request_for({}, code=code)
    text = re.sub(r"\x1b\[[0-9;]*m", "", request_text(asked, {}, width=80))
    lines = text.splitlines()
    assert "│ # small\\u2028assert n <= 100" in lines
    assert sum(line.startswith("│ pay(") for line in lines) == 2
    assert all(line.startswith(("│ # ", "│ ↳ ")) for line in lines if "assert" in line)


def test_render_shows_script_number_and_earlier_changes(shown: Any):
    changes = tuple(f"pay(n={n})" for n in range(7))
    why = "the one before failed: ToolError: it is down"
    lines = shown({"n": 1}, script=2, because=why, changes=changes, made_before=3)
    text = "\n".join(lines)
    assert f"│ script 2: because {why}" in text
    assert "! made before: the very same call was made before in this task (call 3)" in text
    assert "│ changed so far in this task (7):" in text
    assert "│     … more before these; v shows them" in text
    assert "pay(n=6)" in text
    assert "pay(n=1)" not in text
    assert "pay(n=1)" in "\n".join(shown({"n": 1}, changes=changes, whole=True))


def test_truncated_value_shows_how_many_characters_are_hidden(shown: Any):
    text = "\n".join(f"line {n}" for n in range(100))
    lines = shown({"body": text})
    assert "… 704 more characters; v shows them" in "\n".join(lines)
    assert len(lines) < 20
    whole = "\n".join(shown({"body": text}, whole=True))
    assert "line 99" in whole
    assert "9,000 more characters; v shows them" in " ".join(shown({"body": "x" * 10_000}))
    assert "more arguments; v shows them" in " ".join(shown({f"a{n}": n for n in range(50)}))
    assert "more characters; v" in "".join(shown({"ids": list(range(500))})).replace("│     ", "")
    assert "499" in " ".join(shown({"ids": list(range(500))}, whole=True))


TAIL = "x" * 1000 + "; rm -rf /" + "y" * 3190


@pytest.mark.parametrize(
    ("arguments", "more", "unseen"),
    [
        ({"body": TAIL}, {}, "3,200 characters unseen"),
        ({"body": f"one\n{TAIL}"}, {}, "3,204 characters unseen"),
        ({"raw": TAIL.encode()}, {}, "3,200 characters unseen"),
        ({"a": TAIL, "b": TAIL}, {}, "6,400 characters unseen"),
        ({"body": "x" * 1001}, {}, "1 character unseen"),
        ({"n": 1}, {"preview": f"one\n{TAIL}"}, "3,204 characters unseen"),
        ({f"a{n:02}": "xx" for n in range(32)}, {}, "10 characters unseen"),
        ({"ids": ["x" * 300, "end"]}, {}, "characters unseen"),
        ({"body": TAIL}, {"outcome_unknown": True}, "a make it again, 3,200 characters unseen"),
        ({"body": "x" * 1000, "n": 5}, {"preview": "one\ntwo"}, ""),
    ],
)
def test_approve_key_counts_unseen_characters(
    request_for: Any, arguments: Any, more: Any, unseen: Any
):
    def menu(**options: Any):
        text = request_text(request_for(arguments, **more), arguments, width=400, **options)
        return COLOUR.sub("", text).split("└ ")[1]

    assert unseen in menu()
    assert ("unseen" in menu()) == bool(unseen)
    assert "unseen" not in menu(whole=True)


ON_ONE_LINE = {text: wanted for text, wanted in SHOWN.items() if not {*"\n\t"} & {*text}}


@pytest.mark.parametrize(("text", "wanted"), ON_ONE_LINE.items(), ids=map(ascii, ON_ONE_LINE))
def test_rendered_text_follows_the_shared_escaping_rules(shown: Any, text: Any, wanted: Any):
    lines = shown({"n": 1}, description=f"<{text}>", width=400)
    line = next((line for line in lines if line.startswith("│ the script says: ")), "")
    one_line = " ".join(f"<{wanted}>".split())
    assert line == f"│ the script says: {one_line}"


@pytest.mark.parametrize(
    "wrap", [lambda value: [value], lambda value: {"a": value}], ids=["list", "dict"]
)
@pytest.mark.parametrize("whole", [True, False])
def test_value_of_the_greatest_depth_is_rendered(wrap: Any, whole: bool):
    value = "innermost"
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    text = "\n".join(value_part(value, whole=whole).lines)
    assert ("innermost" in text) is whole


def test_rendering_a_huge_value_is_fast():
    started = time.process_time()
    value_part([{"id": n, "text": "x" * 100} for n in range(200_000)], whole=False)
    value_part("x\n" * 5_000_000, whole=False)
    value_part(dict.fromkeys(range(1000000), "x"), whole=False)
    assert time.process_time() - started < 5


def test_render_shows_the_source_of_foreign_values(request_for: Any):
    plain = {"kind": "script", "trust": "own", "text": "written by the model"}
    read = {"kind": "result", "trust": "outside", "text": "from web.read (call 1)"}
    arguments = {"to": ["ada", "eve"], "copies": 2}
    request = request_for(arguments, origins={"to[0]": plain, "to[1]": read, "copies": plain})
    lines = COLOUR.sub("", request_text(request, arguments, width=100)).split("\n")
    assert [line.strip("│ ") for line in lines if "↑" in line] == [
        "↑ source of to[1]: from web.read (call 1)"
    ]
