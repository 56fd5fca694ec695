"""Tests that secrets are found in every spelling, and nothing else is."""

from __future__ import annotations

import base64
import html
import json
import shlex
import string
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import quoteattr

import httpx
import pytest

from delf_engine.redact import REDACTED, RedactedStream, Redactor, forms_of
from delf_engine.secrets import redactable

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
def test_redactor_hides_every_spelling(form: str) -> None:
    assert Redactor([ODD]).redact_text(f"it is <{form}>") == f"it is <{REDACTED}>"


# A password and a token with characters that the rules of escaping treat differently.
QUOTED = "it'sMy\"Quoted\\Pw9"
TOKEN = "AbC/dEf+gHi=jK12"
MARKED = "a1'<b>&\"c2"


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        (TOKEN, str(httpx.URL("http://h/x", username="u", password=TOKEN))),
        (TOKEN, str(httpx.URL("http://h/x", params={"a": TOKEN}))),
        (TOKEN, "http://u:AbC%2fdEf+gHi%3djK12@h/x"),
        (MARKED, quote(MARKED, safe="!'()*")),  # encodeURIComponent
        (MARKED, html.escape(quote(MARKED, safe=";,/?:@&=+$!'()*#"), quote=False)),  # encodeURI
        (QUOTED, str(KeyError(QUOTED))),
        (QUOTED, ascii(f"é {QUOTED}")),
        (QUOTED, repr(QUOTED.encode())),
        (QUOTED, repr({"outer": repr(QUOTED)})),
        (QUOTED, json.dumps(repr(QUOTED))),
        (QUOTED, repr(json.dumps(QUOTED))),
        ("it's-my-pw9", repr("it's-my-pw9")),  # between double quotes
        ("it's-my-pw9", repr("\"it's-my-pw9")),
        ("pä'ß-wörd-9", ascii("pä'ß-wörd-9")),
        ("pä'ß-wörd-9", repr("pä'ß-wörd-9".encode())),
        (MARKED, html.escape(MARKED)),
        (MARKED, html.escape(MARKED, quote=False)),
        (MARKED, html.escape(MARKED).replace("&#x27;", "&#39;")),
        (MARKED, quoteattr(MARKED)),
        (
            MARKED,
            json.dumps(MARKED)
            .replace("<", "\\u003c")
            .replace(">", "\\u003e")
            .replace("&", "\\u0026"),
        ),
        (MARKED, shlex.quote(MARKED)),
        (MARKED, MARKED.replace("'", "''")),
        (MARKED, MARKED.replace('"', '""')),
    ],
)
def test_redactor_hides_what_libraries_make_of_a_secret(secret: str, text: str) -> None:
    redacted = Redactor([secret]).redact_text(text)
    assert redacted.count(REDACTED) == 1
    assert secret[-2:] not in redacted
    assert secret[:2] not in redacted


def test_number_of_forms_stays_small() -> None:
    assert len(set(forms_of("sk-8f3a-91c2"))) < 10
    assert len(set(forms_of(f"{string.punctuation}é ü"))) < 500


@pytest.mark.parametrize("rest", [b"!", b"\xff\x00"])
def test_redactor_hides_secrets_in_bytes(rest: bytes) -> None:
    data = f"it is {ODD}".encode() + rest
    assert Redactor([ODD]).redact_value(data) == f"it is {REDACTED}".encode() + rest


@pytest.mark.parametrize("before", ["", "u", "u:", "u:x", "u:xy"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_form_is_redacted_at_every_alignment(before: str, encode) -> None:
    secret = "p?ssw>rd~1-8f3a"
    encoded = encode(f"{before}{secret} and more".encode()).decode()
    cleaned = Redactor([secret]).redact_text(f"Basic {encoded}")
    assert REDACTED in cleaned
    left = cleaned.removeprefix("Basic ").split(REDACTED)
    assert sum(map(len, left)) <= len(encoded) - len(secret) * 8 // 6 + 4


@pytest.mark.parametrize(
    "word", ["", "      ", "abc12", "password", "Secret", "postgres", "123456"]
)
def test_short_words_are_not_secrets(word: str) -> None:
    assert not redactable([word])


def test_line_ending_is_not_part_of_a_secret() -> None:
    assert redactable(["key-of-a-file-1\n"]) == {"key-of-a-file-1"}


@pytest.mark.parametrize(
    ("pieces", "passed"),
    [
        (["done: ", "ask", "ed\n"], ["done: ", "a", "sked\n"]),
        (["key: sk-8f3a", "-91c2!"], ["key: ", f"{REDACTED}!"]),
        (["sk-8f3a-91c2", "sk-8"], [REDACTED, ""]),
    ],
)
def test_streaming_redaction_holds_back_possible_prefixes(
    pieces: list[str], passed: list[str]
) -> None:
    stream = RedactedStream(Redactor(["sk-8f3a-91c2"]))
    assert [stream.feed(piece) for piece in pieces] == passed
    assert stream.end() == ("sk-8" if pieces[-1] == "sk-8" else "")


def test_streaming_redaction_without_secrets_holds_nothing_back() -> None:
    stream = RedactedStream(Redactor())
    assert (stream.feed("anything"), stream.end()) == ("anything", "")
