"""Tests that mail headers name the same people on every version of Python."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from email.headerregistry import Address
from pathlib import Path

import pytest

from delf_google import mailboxes
from delf_google.addresses import parse, people
from delf_google.mailboxes import format_mailbox, split

PEOPLE = {
    "Ada <ada@x.example>": [("Ada", "ada@x.example")],
    "boss@corp.example <stranger@evil.example>": [("boss@corp.example", "stranger@evil.example")],
    '"boss@corp.example" <s@evil.example>': [("boss@corp.example", "s@evil.example")],
    "boss@corp.example, <s@evil.example>": [("", "boss@corp.example"), ("", "s@evil.example")],
    '"boss@corp.example, x" <s@evil.example>': [("boss@corp.example, x", "s@evil.example")],
    "Ada <ada@x.example>; Bob <bob@y.example>": [("Ada", "ada@x.example"), ("Bob", "bob@y.example")],
    '"Doe, John" <j@d.example>,b@y.example': [("Doe, John", "j@d.example"), ("", "b@y.example")],
    "Friends: a@x.example, Bob <b@x.example>;, c@x.example": [
        ("", "a@x.example"), ("Bob", "b@x.example"), ("", "c@x.example"),
    ],
    "undisclosed-recipients:;": [],
    "ada@x.example (Ada (the) Great)": [("Ada (the) Great", "ada@x.example")],
    "Ada (boss@corp.example) <ada@x.example> (work)": [("Ada", "ada@x.example")],
    "Ada <ada@x.example(boss@corp.example)>": [("Ada", "ada@x.example")],
    "<@r.example,@s.example:joe@x.example>": [("", "joe@x.example")],
    '"john doe"@x.example': [("", '"john doe"@x.example')],
    "ada @ x . example": [("", "ada@x.example")],
    'Ada \\"X\\" <ada@x.example>': [('Ada "X"', "ada@x.example")],
    "Bob <>, a@x.example": [("", "<invalid>"), ("", "a@x.example")],
    "=?utf-8?q?Ren=C3=A9=2C?= <r@x.example>": [("=?utf-8?q?Ren=C3=A9=2C?=", "r@x.example")],
    "Doe, John <john@x.example>": [("", "<invalid>"), ("John", "john@x.example")],
    "Ada <3 <ada@x.example>, b@y.example": [("", "<invalid>"), ("", "b@y.example")],
    '"Ada <ada@x.example>, b@y.example': [("", "<invalid>"), ("", "b@y.example")],
    "<a@x.example> <b@y.example>": [("", "<invalid>")],
    "<a@x.example> boss@corp.example": [("", "<invalid>")],
    "a@x.example b@y.example": [("", "<invalid>")],
    "ada@localhost": [("", "<invalid>")],
    "a@b@x.example": [("", "<invalid>")],
    "x" + "(c)" * 1000 + " <a@x.example>": [("x", "a@x.example")],
    "(" * 5000 + ")" * 5000 + "a@x.example": [("*", "a@x.example")],
    "(" * 30_000 + "a@x.example": [("", "<invalid>")],
    "<" * 30_000 + "a@x.example": [("", "<invalid>")],
    " , ;": [], "": [],
}  # fmt: skip


def named(text: str) -> list[tuple[str, str]]:
    return [(m.name, m.address) if m.is_valid else ("", "<invalid>") for m in split(text)]


def test_people_are_parsed_from_mail_headers():
    for text, expected in PEOPLE.items():
        found = [
            ("*" if name.startswith("(((") else name, address) for name, address in named(text)
        ]
        assert found == expected, text[:60]


def test_mailbox_parsing_is_the_same_on_other_python_versions():
    code = (
        "import sys, json, importlib.util as u; s = u.spec_from_file_location('m', sys.argv[1]); m = u.module_from_spec(s);"
        "sys.modules['m'] = m; s.loader.exec_module(m); print(json.dumps([[[*p, p.is_valid] for p in m.split(t)] for t in json.load(sys.stdin)]))"
    )
    here = json.dumps([[[*person, person.is_valid] for person in split(text)] for text in PEOPLE])
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(
        "3.1[1-9].*/bin/python"
    )
    for python in [sys.executable, *versions]:
        command = [python, "-I", "-c", code, mailboxes.__file__]
        message = subprocess.run(
            command, input=json.dumps(list(PEOPLE)), capture_output=True, text=True, check=True
        )
        assert message.stdout.strip() == here, python


def test_written_addresses_parse_back_unchanged():
    dice = random.Random(52)
    for _ in range(300):
        people = [
            (
                "".join(dice.choices('aé ,;:<>@"()[].\\', k=dice.randrange(8))).strip(),
                f"p{number}@x.example",
            )
            for number in range(dice.randrange(1, 4))
        ]
        text = dice.choice([", ", ";", " ,"]).join(format_mailbox(*person) for person in people)
        assert [(m.name, m.address) for m in split(text)] == [
            (" ".join(n.split()), a) for n, a in people
        ]
        assert [str(one) for one in parse(text)] == [
            str(Address(" ".join(n.split()), *a.split("@"))) for n, a in people
        ]


def test_ambiguous_address_text_is_refused():
    assert people("boss@corp.example <s@evil.example>; b@y.example") == [
        '"boss@corp.example" <s@evil.example>',
        "b@y.example",
    ]
    for unclear in (
        "Doe, John <john@x.example>",
        "<a@x.example> <b@y.example>",
        "undisclosed-recipients:;",
    ):
        with pytest.raises(ValueError, match="not a mail address"):
            people(unclear)
