"""Secrets are found in every form, as wholes and in pieces, and nothing else is."""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote, quote_plus

import pytest

from delf.engine.redact import REDACTED, Redactor
from delf.secrets import worth_hiding

ODD = 'pä"ß\\ wörd/9'


@pytest.mark.parametrize(
    "form",
    [
        ODD,
        quote(ODD),
        quote(ODD, safe=""),
        quote(ODD, safe="").lower(),
        quote_plus(ODD),
        json.dumps(ODD)[1:-1],
        json.dumps(ODD, ensure_ascii=False)[1:-1],
        ODD.encode().hex(),
        ODD.encode().hex().upper(),
        json.dumps(ODD)[1:-1].replace("/", "\\/"),
    ],
)
def test_every_spelling(form: str) -> None:
    assert Redactor([ODD]).text(f"it is <{form}>") == f"it is <{REDACTED}>"


@pytest.mark.parametrize("rest", [b"!", b"\xff\x00"])
def test_bytes(rest: bytes) -> None:
    data = f"it is {ODD}".encode() + rest
    assert Redactor([ODD]).value(data) == f"it is {REDACTED}".encode() + rest


@pytest.mark.parametrize("before", ["", "u", "u:", "u:x", "u:xy"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_wherever_it_begins(before: str, encode) -> None:
    secret = "p?ssw>rd~1-8f3a"
    encoded = encode(f"{before}{secret} and more".encode()).decode()
    cleaned = Redactor([secret]).text(f"Basic {encoded}")
    assert REDACTED in cleaned
    left = cleaned.removeprefix("Basic ").split(REDACTED)
    assert sum(map(len, left)) <= len(encoded) - len(secret) * 8 // 6 + 4


@pytest.mark.parametrize(
    "word", ["", "      ", "abc12", "password", "Secret", "postgres", "123456"]
)
def test_what_never_counts(word: str) -> None:
    assert not worth_hiding([word])


def test_the_end_of_a_line_is_no_part_of_a_secret() -> None:
    assert worth_hiding(["key-of-a-file-1\n"]) == {"key-of-a-file-1"}


# -- pieces --------------------------------------------------------------------------------

SECRETS = ["abcd-1234", "abcd-1234-5678", "hunter2", "correcthorse", ODD, "-----BEGIN\nab12\ncd34"]
BITS = ["abcd", "-12", "34", "-56", "78", "hunter", "2", "x", " ", "\n", "correct", "horse", "ab12"]
BITS += [ODD[:3], ODD[3:7], ODD[7:], "-----", "BEGIN", "cd34"]


@pytest.mark.parametrize("seed", range(8))
def test_pieces_are_together_what_the_whole_is(seed: int) -> None:
    chance = random.Random(seed)
    redactor = Redactor(SECRETS)
    for _ in range(500):
        text = "".join(chance.choices(BITS, k=chance.randint(1, 16)))
        stream, parts, at = redactor.stream(), [], 0
        while at < len(text):
            size = chance.randint(1, 8)
            parts.append(stream.feed(text[at : at + size]))
            at += size
        assert "".join((*parts, stream.end())) == redactor.text(text), text


def test_only_what_could_begin_a_secret_waits() -> None:
    stream = Redactor(["sk-8f3a-91c2"]).stream()
    assert stream.feed("done: ") == "done: "
    assert stream.feed("ask") == "a"
    assert stream.feed("ed\n") == "sked\n"
    assert stream.feed("sk-8f3a") == ""
    assert stream.feed("-91c2!") == f"{REDACTED}!"
    assert stream.feed("sk-8") == ""
    assert stream.end() == "sk-8"


def test_without_secrets_nothing_waits() -> None:
    stream = Redactor().stream()
    assert (stream.feed("anything"), stream.end()) == ("anything", "")
