"""The host's end of the wire, which parses frames of an untrusted guest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from delf.errors import SandboxExecutionError
from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Done,
    Failed,
    LimitReached,
    Limits,
    Outcome,
    Raised,
    Rerun,
    Returned,
    ScriptStart,
    SessionSpec,
    ToolMessage,
)
from delf.values.encoding import MAX_VALUES, UnsupportedValueError, loads
from delf.values.sizes import cost, cost_of_values, has_too_many_values
from delf_sandbox.guest.frames import UNPAIRED_SURROGATES, FrameTooLargeError, encode, frame_around
from delf_sandbox.modules import modules_of

_MAX_NUMBER = 2**63
_MIN_ESTIMATED_SIZE = 128
_VALUE_BYTES = 32
# The first bytes of a tagged value, such as a date, which is a dict only on the wire.
_TAG_PREFIX = b'{"$t"'
# The number of values whose size in memory equals that of a dict.
_VALUES_PER_DICT = 6
# An escaped surrogate such as ``\ud83d``, but not the text ``\\ud83d`` with an escaped backslash.
# Even a pair is refused: the guest writes an emoji as UTF-8, so only a forged frame has escapes.
_ESCAPED_SURROGATE = re.compile(rb"(?<!\\)(?:\\\\)*\\u[dD][89a-fA-F]")


class WireError(SandboxExecutionError):
    """The guest sent data that violates the wire protocol."""

    code = "ERR-SANDBOX-004"
    default_hint = "try again; a sandbox that fails so without a script that meddles has a defect"


def parse(payload: bytes) -> list[Any]:
    """Parse the payload of a guest's frame: a list whose first item is the frame's name.

    Raises:
        WireError: If the payload is not a frame.
    """
    # Check before decoding, because two bytes can take seventy bytes in memory.
    if has_too_many_values(payload):
        raise WireError(f"the sandbox sent a frame of more than {MAX_VALUES:,} values")
    if _has_surrogates(payload):
        raise WireError("the sandbox sent unpaired surrogates, which cannot be encoded as UTF-8")
    try:
        frame = loads(payload)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the sandbox sent a frame that cannot be read: {error}") from None
    if not isinstance(frame, list) or not frame or not isinstance(frame[0], str):
        raise WireError("the sandbox sent something that is not a frame")
    return cast("list[Any]", frame)


def size_in_memory(payload: bytes) -> int:
    """Estimate the size in memory of a parsed payload, in bytes.

    The size can be many times that of the payload: the three characters ``{},`` become a dict of
    seventy bytes. For a small payload, the result is just the payload's size.
    """
    size = len(payload)
    if size < _MIN_ESTIMATED_SIZE:
        return size
    return size + _VALUE_BYTES * _count_values(payload)


def _count_values(payload: bytes) -> int:
    """Count the values of a payload; a dict counts as ``1 + _VALUES_PER_DICT`` values."""
    value_count = cost(payload)
    # cost() is fast, but it also counts separators inside texts as values. Count exactly if the
    # values seem to take more memory than the payload itself.
    if _VALUE_BYTES * value_count > len(payload):
        value_count = cost_of_values(payload)
    # A value such as a date was counted as a dict, because the payload has ``{"$t": …}`` for it.
    tagged_value_count = payload.count(_TAG_PREFIX)
    return value_count - _VALUES_PER_DICT * tagged_value_count


def _has_surrogates(payload: bytes) -> bool:
    """Return True if a payload has a surrogate, either as bytes or as an escape of JSON."""
    # The search for a single byte or two is much faster than the patterns.
    if b"\xed" in payload and UNPAIRED_SURROGATES.search(payload) is not None:
        return True
    return b"\\u" in payload and _ESCAPED_SURROGATE.search(payload) is not None


def parse_call(frame: Sequence[Any]) -> CallRequest:
    """Parse a ``call`` frame.

    Raises:
        WireError: If a field has the wrong type.
    """
    if not _has_types(frame, int, str, str, list, dict, bool, int):
        raise WireError("the sandbox sent a malformed call")
    # If ``is_alone`` is true, the whole script waits for this call.
    _, number, connection, method, args, kwargs, is_alone, line = frame
    for key in kwargs:
        if type(key) is not str:
            raise WireError("the sandbox sent a call whose arguments have no names")
    return CallRequest(
        call_id=number,
        connection=connection,
        method=method,
        args=args,
        kwargs=kwargs,
        alone=is_alone,
        line=line or None,  # 0 for an unknown line
    )


def _has_types(frame: Sequence[Any], *kinds: type) -> bool:
    """Return True if the fields after a frame's name have exactly these types.

    The type ``object`` accepts any field.
    """
    if len(frame) != len(kinds) + 1:
        return False
    fields = zip(frame[1:], kinds, strict=True)
    return all(kind is object or type(value) is kind for value, kind in fields)


def parse_outcome(frame: Sequence[Any]) -> Outcome:
    """Parse the frame that ends a script: ``done``, ``failed``, ``limit`` or ``rerun``.

    Raises:
        WireError: If a field has the wrong type.
    """
    name = frame[0]
    if name == "done" and _has_types(frame, object, dict):
        return Done(value=frame[1], variables=frame[2])
    if name == "failed" and _has_types(frame, str, str, object, object, dict, object):
        _, kind, message, line, source, variables, call_id = frame
        return Failed(
            kind=kind,
            message=message,
            line=_number(line),
            source=_text(source),
            variables=variables,
            call_id=_number(call_id),
        )
    if name == "limit" and _has_types(frame, str, str, object, object, dict):
        _, limit, message, line, source, variables = frame
        return LimitReached(
            limit=limit,
            message=message,
            line=_number(line),
            source=_text(source),
            variables=variables,
        )
    if name == "rerun" and _has_types(frame, str, str, list, dict):
        # The arguments of the script's call of rerun(): the data for the next script's prompt, the
        # work that remains, and the names of the variables to keep.
        _, context, remaining, carry, variables = frame
        return Rerun(context=context, remaining=remaining, carry=tuple(carry), variables=variables)
    raise WireError(f"the sandbox sent a malformed {str(name)[:40]!r} frame")


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def limits_by_name(limits: Limits) -> dict[str, float]:
    """Return a mapping from the name of each limit to its value.

    This is ten times faster than ``dataclasses.asdict``.
    """
    return {name: getattr(limits, name) for name in limits.__slots__}


def init_frame(
    spec: SessionSpec, scratch: str, readable: Sequence[str], links: Mapping[str, str]
) -> bytes:
    """Encode the ``init`` frame, which starts a session.

    Args:
        spec: The session's specification.
        scratch: The path inside the sandbox of the folder in which scripts may write.
        readable: Further paths inside the sandbox that scripts may read.
        links: The paths of input files inside the sandbox, by their names in the scratch folder.
    """
    content = {
        # ``changing`` are the methods with side effects.
        "tools": [[tool.name, list(tool.methods), list(tool.changing)] for tool in spec.tools],
        "modules": list(modules_of(spec)),
        "libraries": list(spec.libraries),
        "limits": limits_by_name(spec.limits),
        "scratch": scratch,
        "readable": list(readable),
        "links": dict(links),
        # The suffixes of files that the host writes from rows, such as spreadsheets.
        "row_files": list(spec.row_files),
        "zone": spec.zone.rule,  # a POSIX rule
    }
    return encode(["init", content], spec.limits.frame_bytes)


def exec_frame(number: int, code: str, limit: int, start: ScriptStart | None = None) -> bytes:
    """Encode the ``exec`` frame, which runs a script.

    Args:
        number: The script's number in the session.
        code: The text of the script.
        limit: The maximum number of bytes of the frame.
        start: The random seed, and the recorded clock reads and event loop iterations to replay.
            Without these, the script gets the real time and randomness.
    """
    start_fields = None if start is None else [start.seed, list(start.clock), list(start.turns)]
    return encode(["exec", number, code, start_fields], limit)


def parse_numbers(frame: Sequence[Any]) -> list[int]:
    """Return the numbers of a frame ``["clock", numbers]`` or ``["turns", numbers]``.

    A clock number is a time in nanoseconds. The turns ``[4, 1, 7, -2]`` say that call 1 was
    answered in iteration 4 of the event loop, and that timer 2 fired in iteration 7.

    Raises:
        WireError: If the frame is malformed.
    """
    if _has_types(frame, list) and all(map(_is_number, frame[1])):
        return frame[1]
    raise WireError("the sandbox sent a malformed clock or turns")


def _is_number(value: Any) -> bool:
    return type(value) is int and -_MAX_NUMBER <= value < _MAX_NUMBER


def answer_frame(call_id: int, answer: CallAnswer, limit: int) -> Sequence[bytes]:
    """Encode the answer to a call, and return the parts of the frame.

    A result that cannot be encoded is replaced by an error, so that the script does not wait
    forever.
    """
    try:
        if isinstance(answer, Returned) and answer.encoded is not None:
            return frame_around(b'["return",%d,' % call_id, answer.encoded, limit)
        match answer:
            case Returned(value):
                return (encode(["return", call_id, value], limit),)
            case ToolMessage(message):
                return (encode(["message", call_id, message], limit),)
            case Raised(kind, message):
                status = [] if answer.http_status is None else [answer.http_status]
                return (encode(["raise", call_id, kind, message, *status], limit),)
    except FrameTooLargeError as error:
        problem = f"the result is too large: {error}; ask for less"
    except UnsupportedValueError as error:
        problem = f"the result cannot be passed to the script: {error}"
    return (encode(["raise", call_id, "ToolError", problem], limit),)
