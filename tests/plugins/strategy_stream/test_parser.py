"""Any cut of any stream gives the same events."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delf_strategy_stream.calls import read_call
from delf_strategy_stream.events import (
    AnswerText,
    Called,
    Event,
    InventedResults,
    Thought,
    UnparsableCall,
)
from delf_strategy_stream.parser import Parser
from support.busy import on_busy_machines

PIECES = (
    *("<think>", "</think>", "<execute>", "</execute>", "<results>", "</results>"),
    *("<exe", "cute>", "</", "<", ">", '"', "\\", "{", "}", "[", "]", ",", ":", "```"),
    *("```json", "json", "\n", " ", "text", "é🦊", "&lt;execute&gt;", "&quot;", '"name"', '"args"'),
    '{"name": "read", "args": {"file": "a<b>"}}',
    '{"name": "say", "args": {"text": "</execute> \\" <execute>[{"}}',
    'shell("ls")',
    "{'name': 'list', 'args': {'all': True,}}",
)
NOT_JSON = 'it is not JSON; expected is [{"name": …, "args": {…}}]'
streams = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


def join_texts(events: list[Event]) -> list[Event]:
    """Join neighbouring pieces of reasoning, and neighbouring pieces of text."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, Thought) and isinstance(last, Thought):
            joined[-1] = Thought(last.text + event.text)
        elif isinstance(event, AnswerText) and isinstance(last, AnswerText):
            joined[-1] = AnswerText(last.text + event.text)
        else:
            joined.append(event)
    return joined


def parse(*pieces: str, calls: bool = True) -> list[Event]:
    parser = Parser(parses_calls=calls)
    events = [event for piece in pieces for event in parser.feed(piece)]
    return join_texts([*events, *parser.finish()])


@on_busy_machines
@given(st.one_of(streams, st.text(alphabet='<>/execut{}[]"\\`json ', max_size=60)), st.data())
def test_parser_gives_the_same_events_for_any_cut(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    assert parse(*pieces) == parse(text) == parse(*text)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
calls_of_models = st.lists(
    st.tuples(st.text(min_size=1), st.dictionaries(st.text(), plain, max_size=3)), max_size=4
)


@on_busy_machines
@given(calls_of_models, st.sampled_from([None, 2]), st.booleans(), st.data())
def test_parser_returns_the_calls_that_a_model_wrote_as_json(
    calls, indent, ascii_only: bool, data: st.DataObject
) -> None:
    written = json.dumps(
        [{"name": name, "args": args} for name, args in calls],
        indent=indent,
        ensure_ascii=ascii_only,
    )
    text = f"<think>a</think>Let me look.<execute>\n{written}\n</execute>"
    place = data.draw(st.integers(0, len(text)))
    assert parse(text[:place], text[place:]) == [
        Thought("a"),
        AnswerText("Let me look."),
        *(Called(name, args) for name, args in calls),
    ]


def test_calls_are_parsed_as_soon_as_complete() -> None:
    parser = Parser()
    assert parser.feed('<execute>[{"name": "a", "args": {}') == []
    assert parser.feed('}, {"na') == [Called("a", {})]
    assert parser.feed('me": "b"}') == [Called("b", {})]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("Use <execute> in text.", [AnswerText("Use <execute> in text.")]),
        ("a < b </think> c", [AnswerText("a < b </think> c")]),
        ("<think><think>x</think>y", [Thought("<think>x"), AnswerText("y")]),
        ("<think><execute>[]</think>y", [Thought("<execute>[]"), AnswerText("y")]),
        ("<think>x", [Thought("x"), UnparsableCall("", "<think> has no end")]),
        ("&lt;execute&gt;[]", [AnswerText("&lt;execute&gt;[]")]),
        ("<execute>", [UnparsableCall("<execute>", "no calls follow")]),
        ('<execute>shell("ls")</execute>', [UnparsableCall('shell("ls")', NOT_JSON)]),
        ("<execute>\nawait disk.read(", [UnparsableCall("await disk.read(", NOT_JSON)]),
        ("<execute> begins the calls", [AnswerText("<execute> begins the calls")]),
        ("<execute></execute>", []),
        ('<execute>[{"name": "a"}]', [Called("a", {})]),
        ('<execute>{"name": "a"}</execute>', [Called("a", {})]),
        ('<execute>```json\n[{"name": "a"}]\n```</execute>', [Called("a", {})]),
        ('<execute>```json```json[{"name": "a"}]</execute>', [Called("a", {})]),
        (
            '<execute>[{"name": "a"}]</execute>\n<execute>[{"name": "b"}]</execute>',
            [Called("a", {}), Called("b", {})],
        ),
        (
            '<execute>[{"name": "a"}]</execute>\n<results>[1]</results>So it is 1.',
            [Called("a", {}), InventedResults("<results>[1]</results>So it is 1.")],
        ),
        ("Done.<results>[1]", [AnswerText("Done.<results>[1]")]),
        (
            '<execute>[{"name": "a", "args": {"x": [1}</execute>',
            [UnparsableCall('{"name": "a", "args": {"x": [1}', "it has no end")],
        ),
        (
            '<execute>[{"name": "a"}, {"name": "b", "ar',
            [Called("a", {}), UnparsableCall('{"name": "b", "ar', "it has no end")],
        ),
        (
            '<execute>[read, {"name": "a"}]</execute>',
            [
                Called("a", {}),
                UnparsableCall("read", "it is not a call; an array of objects is expected"),
            ],
        ),
    ],
)
def test_parse_reads_what_models_write(text: str, events: list[Event]) -> None:
    assert parse(text) == events


def test_markers_beside_native_calls_are_plain_text() -> None:
    text = "<think>x</think><execute>[]</execute>"
    assert parse(text, calls=False) == [Thought("x"), AnswerText("<execute>[]</execute>")]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "a", "arguments": {"x": 1}}', {"x": 1}),
        ('{"name": "a", "args": "{\\"x\\": 1}"}', {"x": 1}),
        ('{"name": "a", "args": {"x": 1,},}', {"x": 1}),
        ('{"name": "a", "args": {"x": "1,}"},}', {"x": "1,}"}),
        ('{"name": "a", "args": {"x": "one\ntwo"}}', {"x": "one\ntwo"}),
        ("{'name': 'a', 'args': {'x': True}}", {"x": True}),
        ("{&quot;name&quot;: &quot;a&quot;, &quot;args&quot;: {&quot;x&quot;: 1}}", {"x": 1}),
        ('{"name": "a", "args": {"x": "&quot;"}}', {"x": "&quot;"}),
        ('{"name": "a", "args": null}', {}),
    ],
)
def test_malformed_call_is_repaired_if_unambiguous(text: str, arguments: object) -> None:
    assert read_call(text) == Called("a", arguments)


@pytest.mark.parametrize(
    "piece", ["\n", "```\n", "x <execute>", "x <execute></execute>y", "`<execute>"]
)
def test_parser_takes_linear_time(piece: str) -> None:
    answer = piece * (1_000_000 // len(piece))
    started = time.process_time()
    parse(answer)
    assert time.process_time() - started < 3  # with quadratic time, 5 to 30 s


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "a", "file": "x"}',
        '{"args": {}}',
        '{"name": "a", "args": [1]}',
        '{"name": "a", "args": "x"}',
        '{"name": "a", "args": {"x": "he said "no""}}',
        '{"name": "a", "args": {}, "input": {"x": 1}}',
        '{"name": "a" "args": {}}',
        "{{}}",
        "{'name': 'a', 'args': {'x': {1, 2}}}",
        "{'name': 'a', 'args': {'x': b'x'}}",
        '{"name": "a", "args": {"paths": ["/tmp/a" "/tmp/b"]}}',
        "{'name': 'a', 'args': {'paths': ['/tmp/a' '/tmp/b']}}",
        '{"name": "a", "args": {"x": 1, "x": 2}}',
        "{'name': 'a', 'args': {'x': 1, 'x': 2}}",
        '{"name": "a", "args": {"x": 1}, "args": {"x": 2}}',
        '{"name": "a", "args": "{\\"x\\": 1, \\"x\\": 2}"}',
        '{"name": "a", "args": {"x": [1 2]}}',
        '{&quot;name&quot;: &quot;a&quot;, "args": {&quot;x&quot;: 1}}',
    ],
)
def test_ambiguous_call_is_refused(text: str) -> None:
    assert isinstance(read_call(text), UnparsableCall)
