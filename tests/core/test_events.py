import dataclasses
import datetime as dt
import json
from typing import get_args, get_type_hints

import pytest

from delf import events
from delf.errors import DelfError
from delf.events import CallStarted, Event, ModelReplied, TaskFinished, TaskStarted, decode, encode
from delf_devkit.testing.events import sample_of

HEAD = {"task_id": "t1", "seq": 3, "at": 12.5}


def sample(cls):
    hints = get_type_hints(cls)
    fields = [f for f in dataclasses.fields(cls) if f.name not in HEAD and f.compare]
    return cls(**HEAD, **{f.name: sample_of(hints[f.name]) for f in fields})


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
def test_events_survive_json(cls):
    event = sample(cls)
    record = json.loads(json.dumps(encode(event)))
    assert decode(record) == event
    assert (record["type"], record["v"]) == (cls.__name__, events.EVENT_VERSION)
    assert {key: record[key] for key in HEAD} == HEAD


@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.__name__)
def test_events_are_frozen(cls):
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample(cls).seq = 9


def test_event_union_lists_every_event_class():
    defined = {
        cls
        for cls in vars(events).values()
        if dataclasses.is_dataclass(cls)
        and {"seq", "at"} < {f.name for f in dataclasses.fields(cls)}
    }
    assert {cls for cls in defined if not cls.__name__.startswith("_")} == set(get_args(Event))


def test_encoded_event_has_the_documented_form():
    event = CallStarted(
        **HEAD,
        call_id=1,
        action="db.find",
        arguments={"day": dt.date(2024, 1, 1)},
        effect="read",
        digest="d",
    )
    assert encode(event) == {
        "type": "CallStarted",
        "v": 1,
        "task_id": "t1",
        "seq": 3,
        "at": 12.5,
        "data": {
            "call_id": 1,
            "action": "db.find",
            "arguments": {"day": {"$t": "date", "v": "2024-01-01"}},
            "effect": "read",
            "digest": "d",
            "description": None,
            "line": None,
        },
    }


def test_decoder_ignores_unknown_fields_and_fills_missing_fields():
    record = encode(TaskStarted(**HEAD, task="do"))
    record["data"]["later"] = 1
    del record["data"]["origin"]
    assert decode(record) == TaskStarted(**HEAD, task="do", origin="")
    record = encode(TaskFinished(**HEAD, status=True, text="x", duration_ms=1.0))
    del record["data"]["files"]
    assert decode(record).files == {}


def test_decoder_reads_the_user_of_earlier_versions():
    event = TaskStarted(**HEAD, task="do", user="ada:1")
    record = encode(event)
    record["data"]["key"] = record["data"].pop("user")
    assert decode(record) == event


@pytest.mark.parametrize("change", [{"type": "Unheard"}, {"type": None}, {"v": 99}])
def test_events_of_a_newer_version_are_refused(change):
    record = {**encode(TaskStarted(**HEAD, task="do")), **change}
    with pytest.raises(DelfError, match="cannot read an event") as caught:
        decode(record)
    assert caught.value.hint == "it was written by a newer delf"


def test_usage_of_a_decoded_event_is_an_object():
    event = sample(ModelReplied)
    decoded = decode(json.loads(json.dumps(encode(event))))
    assert decoded.usage.total_tokens == event.usage.total_tokens


def test_reply_without_recorded_calls_decodes():
    record = encode(sample(ModelReplied))
    del record["data"]["calls"]
    assert decode(record).calls == ()
