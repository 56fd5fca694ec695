"""Origins of values: found by their letters, whatever stands between these."""

import random

import pytest

from delf.events import CallFinished, CallStarted, ModelCalled, ScriptGenerated
from delf_engine.origins.fold import Origins
from delf_engine.origins.origin import Wording

SEEN = {"task_id": "t", "seq": 0, "at": 0.0}


def origins_of(own=None, outside=None, *, code="pass", task="Pay the bill"):
    """Origins after a call with one's own data, and one with others' words."""
    origins = Origins(task, list, lambda action: Wording(trust=action))
    origins.follow(
        [
            ModelCalled(**SEEN, model="m", purpose="generate"),
            ScriptGenerated(**SEEN, code=code, attempt=1),
            *(
                CallFinished(
                    **SEEN, call_id=n, action=action, status="ok", result=given, duration_ms=1.0
                )
                for n, (action, given) in enumerate((("own", own), ("outside", outside)), 1)
            ),
        ]
    )
    return origins


def origin(value, **given):
    return origins_of(**given).of({"value": value})["value"]


FOUND = {
    "digits in groups": ("+491701234567", "call +49 170 1234567 now"),
    "digits that were put in groups": ("49 170 12 345 67", "call +491701234567 now"),
    "a short number that is a whole value": ("4711", [4711]),
    "an address behind a scheme": ("see ada1@b.de", "mailto:ada1@b.de"),
    "an id in a sentence": ("the ticket R-48213 please", ["R-48213"]),
    "two words with one letter of two bytes": ("Müller Straße 8", "in der Müller-Straße 8, hinten"),
    "in full width and with letters of no width": (
        "ＤＥ８９\u200b370400440532",
        "DE89 3704 0044 0532",
    ),
    "a passage of a longer text": (
        "-" + "q" * 90 + "many words of a stranger " * 6,
        "many words of a stranger " * 9,
    ),
    "half of a character": ("\ud83d broken text of theirs", "a \ud83d broken text of theirs"),
}


@pytest.mark.parametrize(("value", "given"), FOUND.values(), ids=FOUND)
def test_a_strangers_text_is_found_however_it_is_written(value, given):
    assert origin(value, outside=given).is_others


@pytest.mark.parametrize("length", [*range(3, 40), 150, 700])
def test_a_piece_of_any_length_is_found_wherever_it_begins(length):
    letters = "".join(random.Random(length).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=3000))
    for begin in range(1, 18):
        value = letters[begin : begin + length]
        given = [value] if length < 12 else letters
        found = origin(value, outside=given)
        assert found.is_others
        assert found.is_part == (length >= 12)


def test_value_found_nowhere_is_unknown():
    letters = "".join(random.Random(1).choices("abcdefghij", k=50_000))
    origins = origins_of(outside=letters)
    for length in (3, 6, 9, 14, 15, 16, 30, 200):
        assert origins.of({"v": "z" + letters[:length].upper()[::-1]})["v"].kind == "unknown"


@pytest.mark.parametrize(
    ("value", "own", "is_own"),
    [
        ("GB33BUKB20201555555555", [{"a": "GB33-BUKB-2020", "b": "GB33BUKB20201555555555"}], True),
        ("GB33BUKB.2020", ["GB33-BUKB-2020", "GB33.BUKB2020"], False),
        ("GB33.BUKB2020", ["GB33-BUKB-2020", "GB33.BUKB2020"], True),
        ("GB33 BUKB 2020 1555 555555", ["GB33BUKB20201555555555"], True),
        ("20201555555555", ["GB33BUKB20201555555555"], False),
        ("1250", ["1250.00", 1250], True),
        ("12.50", [1250], False),
        ("1250", ["01250"], False),
        ("1234567890123456", ["1234567890123457"], False),
        ("ada@firm.example", [{"ada@firm.example": "writer"}], True),
    ],
)
def test_of_ones_own_results_a_whole_value_is_ones_own(value, own, is_own):
    origins = origins_of(own=own, outside="nothing of it")
    assert (origins.own(value) is not None) is is_own


@pytest.mark.parametrize(
    ("arguments", "is_own"),
    [
        ({}, True),
        ({"name": "Ada"}, True),
        ({"name": "the bill"}, True),
        ({"name": "Bob"}, True),
        ({"name": "Eve"}, False),
        ({"names": ["Ada", "Eve"]}, False),
        ({"number": 7}, False),
    ],
)
def test_a_result_is_as_foreign_as_what_its_call_was_given(arguments, is_own):
    origins = origins_of(own=["Bob"], outside="see Eve", code="find('Ada')")
    took = {"task_id": "t", "seq": 0, "at": 0.0, "call_id": 3, "action": "own"}
    origins.follow(
        [
            *[None] * 4,
            CallStarted(**took, arguments=arguments, effect="read", digest=""),
            CallFinished(**took, status="ok", result=["GB33"], duration_ms=1.0),
        ]
    )
    assert (origins.own("GB33") is not None) is is_own


@pytest.mark.parametrize(
    ("action", "given", "text", "is_own"),
    [
        ("bank.keep", "Eve", "GB33", False),
        ("bank.keep", "Ada", "GB33", True),
        ("note.keep", "Eve", "GB33", True),
        ("note.keep", "Eve", "Eve", False),
    ],
)
def test_what_a_service_was_given_of_others_words_may_come_back(action, given, text, is_own):
    trust = lambda action: Wording(trust="outside" if action == "mails" else "own")  # noqa: E731
    origins = Origins("Pay", list, trust)
    names = ("mails", action, "bank.find")
    calls = [{**SEEN, "call_id": number, "action": name} for number, name in enumerate(names, 1)]
    origins.follow(
        [
            ModelCalled(**SEEN, model="m", purpose="generate"),
            ScriptGenerated(**SEEN, code="find('Ada')", attempt=1),
            CallStarted(**calls[0], arguments={}, effect="read", digest=""),
            CallFinished(**calls[0], status="ok", result="Eve", duration_ms=1.0),
            CallStarted(**calls[1], arguments={"text": given}, effect="write", digest=""),
            CallFinished(**calls[1], status="ok", result="kept", duration_ms=1.0),
            CallStarted(**calls[2], arguments={}, effect="read", digest=""),
            CallFinished(**calls[2], status="ok", result=[text], duration_ms=1.0),
        ]
    )
    assert (origins.own(text) is not None) is is_own


@pytest.mark.parametrize(
    ("value", "says", "is_there"),
    [
        ("DE89370400440532013000", "to DE89 3704 0044 0532 0130 00", True),
        ("Ada  Lovelace", "ask ADA LOVELACE", True),
        ("ada@example.co.m", "to ada@example.com", False),
        ("ample.com", "to ada@example.com", False),
        ("1250", "pay 1,250.00 euros", True),
        ("1,250", "pay 1250 euros", True),
        ("https://example.org/", "see example.org", True),
        ("12", "pay 1,250.00 euros", False),
    ],
)
def test_the_users_words_count_as_words_of_their_own(value, says, is_there):
    assert (origin(value, task=says, outside="x").kind == "task") is is_there


def test_a_script_whose_author_searched_the_web_is_in_others_words():
    origins = Origins("Pay the bill", list, lambda action: Wording(trust="own"))
    asked = ModelCalled(**SEEN, model="m", purpose="generate", server_side=("web_search",))
    origins.follow([asked, ScriptGenerated(**SEEN, code="pay('DE89 3704')", attempt=1)])
    found = origins.of({"to": "DE89 3704"})["to"]
    assert (found.kind, found.trust) == ("script", "outside")
    assert "its provider searches" in origins.author.described()
    assert origins.of({"what": "the bill"})["what"].kind == "task"
