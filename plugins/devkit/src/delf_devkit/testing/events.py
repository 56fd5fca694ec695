"""Sample events of every kind, for tests of journals and observers."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

from delf import events as ev
from delf.messages import ToolCall, Usage

_ARGUMENTS: Final[Mapping[str, Any]] = {
    "to": ["ann@example.org", "Zoë Ωμέγα 🦊"],
    "amount": Decimal("12.50"),
    "due": dt.date(2026, 3, 1),
    "at": dt.datetime(2026, 3, 1, 9, 30, tzinfo=dt.timezone.utc),  # noqa: UP017 - reads plainly
    "raw": b"\x00\xff",
    "nested": {"a": [1, 2.5, None, True], "$t": "no tag"},
}
# Values for fields with these names, chosen because a journal could store them wrongly.
_VALUES_BY_FIELD: Final[Mapping[str, Any]] = {
    "task": "Pay the bill.\nToday.",
    "origin": "agent_1",
    "prompt": "packed",
    "backend": "local",
    "action": "bank.pay",
    "effect": "irreversible",
    "digest": "ab" * 32,
    "description": "pays",
    "arguments": _ARGUMENTS,
    "variables": _ARGUMENTS,
    "result": _ARGUMENTS,
    "code": "print(1)",
    "text": "é\n\u2028 \x1b[31m",
    "usage": Usage(input_tokens=5, cached_tokens=1, output_tokens=2),
    "calls": (ToolCall(id="c1", name="bank.pay", arguments='{"amount": 5}'),),
    "readings": (1_772_000_000_000_000_000,),
}
# Values for fields of one event class, in addition to those of ``_VALUES_BY_FIELD``.
_VALUES_BY_EVENT: Final[Mapping[type[ev.Event], Mapping[str, Any]]] = {
    ev.ApprovalRequested: {"code": None},  # a request about a call, not a script
    ev.CallFinished: {"digest": None},  # the gate allowed the call
    ev.RerunRequested: {"variables": {"count": "int"}},
    ev.TaskFinished: {"code": None, "status": True, "text": "paid", "cost_usd": 0.1},
}
_SAMPLES_BY_TYPE: Final[Mapping[Any, Any]] = {
    str: "words",
    int: 1,
    float: 1.5,
    bool: False,
    Any: (1, {"due": dt.date(2026, 3, 1), "amount": Decimal("1.1"), "pair": (2,)}),
}


def every_event(task_id: str = "task_1", first: int = 1) -> tuple[ev.Event, ...]:
    """Return one event of every kind, with values that are hard to store.

    Args:
        task_id: The task of the events.
        first: The sequence number of the first event.
    """
    return tuple(
        kind(task_id=task_id, seq=seq, at=1_772_000_000.0 + seq, **_fields(kind))
        for seq, kind in enumerate(get_args(ev.Event), first)
    )


def _fields(kind: type[ev.Event]) -> dict[str, Any]:
    """Return sample values for the fields that the class of an event declares itself.

    Most optional fields are left out, so that they keep their defaults.
    """
    samples = {**_VALUES_BY_FIELD, **_VALUES_BY_EVENT.get(kind, {})}
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in ("task_id", "seq", "at"):
            continue
        if field.name in samples:
            values[field.name] = samples[field.name]
        elif _is_required(field):
            values[field.name] = sample_of(hints[field.name])
    return values


def _is_required(item: dataclasses.Field[Any]) -> bool:
    return item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING


def sample_of(hint: Any) -> Any:
    """Return a sample value of a type; for a union or a ``Literal``, of its first option.

    Args:
        hint: A resolved annotation of an event's field.
    """
    if hint in _SAMPLES_BY_TYPE:
        return _SAMPLES_BY_TYPE[hint]
    if dataclasses.is_dataclass(hint):
        kind = cast("type[Any]", hint)
        hints = get_type_hints(kind)
        fields = dataclasses.fields(kind)
        return kind(**{item.name: sample_of(hints[item.name]) for item in fields})
    origin = get_origin(hint)
    options = get_args(hint)
    if origin is Literal:
        return options[0]
    first = sample_of(options[0])
    if origin is tuple:
        return (first,)
    if origin is Mapping:
        return {first: sample_of(options[1])}
    return first  # of a union
