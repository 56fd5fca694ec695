"""Encoding of values between processes: JSON, with tags for types that JSON does not have.

A tagged value is ``{"$t": TAG, "v": …}``. The same file runs on the host and inside every
sandbox, so it uses the standard library only. Nothing here is ever unpickled, and decoding
builds plain values only: a hostile sender can choose data, never code.

========== ==========================================
tag        value
========== ==========================================
datetime   ISO 8601 text (also ``date`` and ``time``)
timedelta  seconds as a number
decimal    text
bytes      base64 text
set        list (also ``frozenset`` and ``tuple``)
uuid       text
path       text
complex    ``[real, imag]``
dict       list of pairs: keys that are not text, or text that looks like a tag
later      a tagged ``datetime`` or ``time`` whose ``fold`` is 1
========== ==========================================

Enums become their value; dataclasses, pydantic models, mappings and other iterables of the
standard kinds become plain mappings and lists. A named tuple becomes a tuple, and in the result of
a tool a mapping, unless it is a key.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import io
import json
import pathlib
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from itertools import chain, islice
from typing import Any, cast

TAG = "$t"
_MAX_REPR = 1000
_MAX_COLLISIONS = 40  # more keys of one hash are an attack; 1, 2**61 and 2**122 share a hash
_MAX_SHORT = 10_000
_MAX_SET = 4_000_000  # 40,000 pairs, sorted in a third of a second
_MAX_POWER = 6144  # largest exponent of IEEE 754's decimal128
_FEW_LEVELS = 3
MAX_VALUES = 5_000_000
"""The maximum number of values in one message from a sandbox.

A limit in bytes would not do, because a value of two encoded bytes can take 70 bytes of memory.
"""
MAX_DEPTH = 500
"""The maximum depth of nested containers, which host and sandbox can both decode."""
_TOO_DEEP = f"the value is nested too deeply (the limit is {MAX_DEPTH} levels), or contains itself"
# For each type, the units of ``VALUE_BYTES`` that a value takes beyond the first unit. The parts of
# the value are not included.
_COSTS = {str: 0, bytes: 10, int: 0, float: 0, bool: 0, type(None): 0, list: 2, dict: 6}
# The same for a value of any other type.
_DEFAULT_COST = 12
VALUE_BYTES = 32
"""Estimated bytes of a value in memory, not counting the characters of a text."""
_TAG_BYTES = b'"$t"'
PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types that JSON encodes unchanged."""
_FEW_PARTS = 8
_TYPES_WITHOUT_CHARACTERS = frozenset({int, float, bool, type(None)})
# The types whose characters or bytes count one by one.
_TEXTS = (str, bytes, bytearray, memoryview)
# type() of untyped values, whose types a type checker would report as partly unknown.
_type_of: Callable[[Any], Any] = type


class UnsupportedValueError(TypeError):
    """A value has a type, size or depth that cannot be encoded."""


class TooLargeError(UnsupportedValueError):
    """A value has too many parts or characters to be encoded."""


def dumps(value: Any, *, named: bool = False) -> bytes:
    """Encode a value as UTF-8 JSON.

    Args:
        value: Data of the types that the docstring of this module lists.
        named: Encode named tuples as mappings instead of tuples.

    Raises:
        UnsupportedValueError: If a type is not supported, or nesting is too deep.
    """
    token = _NAMED.set(named)
    try:
        text = _write(_encode(value))
    except RecursionError:
        raise UnsupportedValueError(_TOO_DEEP) from None
    except ValueError as error:  # an integer of more digits than Python writes
        raise UnsupportedValueError(str(error)) from None
    finally:
        _NAMED.reset(token)
    return text.encode("utf-8", "surrogatepass")


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Decode the output of :func:`dumps`.

    Raises:
        ValueError: If the bytes are not valid encoded data.
    """
    raw = bytes(data)
    # Searching for a single byte first is forty times faster.
    reader = _read_tagged if b"$" in raw and _TAG_BYTES in raw else _read_plain
    return _decode(reader, raw)


def make_loads(record: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], Any]:
    """Return a variant of :func:`loads` that converts each decoded dict.

    Args:
        record: Converts a decoded dict.
    """

    def decode_object(value: dict[str, Any]) -> Any:
        return _decode_tag(value) if TAG in value else record(value)

    reader = json.JSONDecoder(object_hook=decode_object).decode
    return lambda data: _decode(reader, data)


def _decode(reader: Callable[[str], Any], raw: bytes) -> Any:
    try:
        return reader(raw.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def estimate_size(value: Any, max_size: int) -> int:
    """Estimate the encoded size of a value in bytes, without encoding it.

    A shared value counts each time it occurs, because it is encoded each time.

    Args:
        value: Any value.
        max_size: The number at which counting stops.
    """
    total = 0
    pending: list[Any] = [(value,)]  # containers whose parts are not counted yet
    while pending:
        parts, units = _parts_of(pending.pop())
        total += VALUE_BYTES * units
        if total > max_size:
            break
        for part in parts:
            kind = _type_of(part)
            if kind is str or kind is bytes:
                total += len(part)
            elif kind not in PLAIN:  # for a plain part, such as a number, its unit is enough
                pending.append(part)
    return total


def check_size(value: Any, max_size: int, most_values: int | None = None) -> None:
    """Raise for a value that is too large to encode.

    A shared value is encoded each time it occurs, so 40 lists that each hold the next list twice
    expand to 10¹² values. The check visits each object once and is therefore fast.

    Args:
        value: Any value.
        max_size: The maximum total length of all texts and byte strings.
        most_values: The maximum number of values; :data:`MAX_VALUES` when omitted.

    Raises:
        TooLargeError: If a limit is exceeded.
        UnsupportedValueError: If nesting exceeds :data:`MAX_DEPTH`.
    """
    try:
        _Sizes(max_size, most_values or MAX_VALUES).measure(value, 1)
    except RecursionError:
        raise UnsupportedValueError(_TOO_DEEP) from None


# The cost, the characters and the levels of a value. The cost is the estimated memory in units of
# ``VALUE_BYTES``, without characters. The bytes of byte strings count as characters. Levels are
# nested containers: ``[1]`` has one level, and ``[[1], 2]`` has two. For speed, a plain tuple.
_Size = tuple[int, int, int]


class _Sizes:
    """Measures a value, visiting each object once, even if it occurs several times."""

    def __init__(self, max_size: int, most_values: int) -> None:
        self._max_size, self._max_values = max_size, most_values
        # Each measured value with its size, by the value's id(). The reference keeps the value
        # alive, so that no other object gets its id.
        self._measured: dict[int, tuple[Any, _Size]] = {}

    def measure(self, value: Any, level: int) -> _Size:
        """Return the size of a value, measuring the value if it has not been measured before.

        Args:
            value: Any value.
            level: The number of containers around the value, plus one.

        Raises:
            UnsupportedValueError: If the value is nested too deeply.
            TooLargeError: If the cost or the number of characters exceeds its limit.
        """
        measured = self._measured.get(id(value))
        if measured is not None:
            _, (cost, characters, levels) = measured
            # The value may have been measured where fewer containers were around it.
            if level - 1 + levels > MAX_DEPTH:
                raise UnsupportedValueError(_TOO_DEEP)
            return cost, characters, levels
        if level > MAX_DEPTH:
            raise UnsupportedValueError(_TOO_DEEP)
        parts, units = _parts_of(value)
        self._check_limits(units, 0)  # raise before many parts are visited
        kind = _type_of(value)
        cost = 1 + _COSTS.get(kind, _DEFAULT_COST)  # without the parts, which are added below
        characters = 0
        levels = 1
        if issubclass(kind, _TEXTS):
            characters = len(value)
        elif kind is list and _TYPES_WITHOUT_CHARACTERS.issuperset(map(_type_of, parts)):
            cost += units  # each item, such as a number, costs 1: no visits are needed
        else:
            for part in parts:
                part_kind = _type_of(part)
                if part_kind is str or part_kind is bytes:
                    cost += 1
                    characters += len(part)
                elif part_kind in PLAIN:  # such as a number
                    cost += 1
                else:
                    inner_cost, inner_characters, inner_levels = self.measure(part, level + 1)
                    cost += inner_cost
                    characters += inner_characters
                    levels = max(levels, 1 + inner_levels)
                    self._check_limits(cost, characters)
        self._check_limits(cost, characters)
        size = cost, characters, levels
        if levels > 1 or units > _FEW_PARTS:  # counting a few parts again is cheaper
            self._measured[id(value)] = value, size
        return size

    def _check_limits(self, cost: int, characters: int) -> None:
        """Raise if a value takes too much memory or has too many characters.

        The error messages simplify: they call units of cost values, and characters bytes. A number
        costs one unit, but a dict costs several.

        Args:
            cost: The estimated memory without characters, in units of ``VALUE_BYTES``.
            characters: The number of characters in texts, plus the bytes of byte strings.
        """
        if cost > self._max_values:
            raise TooLargeError(f"it has more than {self._max_values:,} values")
        if characters > self._max_size:
            raise TooLargeError(f"it takes more than {self._max_size:,} bytes")


def _parts_of(value: Any) -> tuple[Iterable[Any], int]:
    """Return the direct parts of a value, and the value's size in units of ``VALUE_BYTES`` bytes.

    Each part counts as one unit. A text or bytes object has no parts; its length counts.
    """
    kind = _type_of(value)
    if kind is list or kind is tuple:
        return value, len(value)
    if kind is dict:
        return chain(value, value.values()), 2 * len(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        keys_and_values = chain.from_iterable(items.items())
        # An iterator may yield more than len().
        return islice(keys_and_values, 2 * len(items)), 2 * len(items)
    if issubclass(kind, _TEXTS):
        return (), len(value) // VALUE_BYTES
    if isinstance(value, enum.Enum):  # a Flag member iterates over itself
        return (value.value,), 1
    if isinstance(value, Collection):
        members = cast("Collection[Any]", value)
        return islice(members, len(members)), len(members)
    names: Iterable[str] = getattr(kind, "__dataclass_fields__", ())
    if not names:
        names = getattr(kind, "__pydantic_fields__", ())
    fields = [getattr(value, name, None) for name in names]
    return fields, len(fields)


def to_jsonable(value: Any) -> Any:
    """Convert a value to JSON types; a type missing in JSON becomes an object with a type tag."""
    try:
        return _encode(value)
    except RecursionError:
        raise UnsupportedValueError(_TOO_DEEP) from None


def to_jsonable_or_repr(value: Any) -> Any:
    """Convert a value to JSON data with tags for other types, such as dates.

    Parts that cannot be encoded become their ``repr``. If the value is nested too deeply, only its
    outermost mappings are encoded, and each deep part becomes a text that names its type.
    """
    return _jsonable_or_repr(value, levels_left=_FEW_LEVELS)


def is_same_data(first: Any, second: Any) -> bool:
    """Return True if two values are equal and of the same types, unlike 1 and True."""
    texts = [json.dumps(to_jsonable_or_repr(value), sort_keys=True) for value in (first, second)]
    return texts[0] == texts[1]


def _jsonable_or_repr(value: Any, levels_left: int) -> Any:
    """Encode a value; replace parts that cannot be encoded by their ``repr``.

    Args:
        value: Any value.
        levels_left: The number of levels to go into a value that is nested too deeply. At each
            level, the encoding is tried again for all levels inside, so the number must be small.
    """
    try:
        return _encode(value)
    except RecursionError:
        if levels_left == 0:
            return f"<{kind_name(value)}, nested too deeply>"
        levels_left -= 1
    except UnsupportedValueError:
        pass
    # Perhaps only some parts are unsupported or nested too deeply.
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return {str(name): _jsonable_or_repr(item, levels_left) for name, item in mapping.items()}
    try:
        return repr(value)[:_MAX_REPR]
    except RecursionError:
        return f"<{kind_name(value)}, nested too deeply>"


def from_jsonable(value: Any) -> Any:
    """Decode a value from the output of :func:`to_jsonable`."""
    if isinstance(value, list):
        return [from_jsonable(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return _decode_tag({key: from_jsonable(item) for key, item in items})
    return value


def _encode(value: Any) -> Any:
    """Convert a value to JSON types.

    Exact types, which most values have, are tried before subclasses. For speed, a plain item of a
    list or dict is not passed to this function.
    """
    kind = _type_of(value)
    if kind in PLAIN:
        return value
    if kind is list:
        return [item if type(item) in PLAIN else _encode(item) for item in value]
    if kind is dict:
        return encode_mapping(value)
    encoder = ENCODERS.get(kind)
    if encoder is not None:
        return encoder(value)
    return _encode_other(value)


def encode_mapping(value: Mapping[Any, Any]) -> Any:
    """Convert a mapping to JSON types, as :func:`to_jsonable` does."""
    encoded_values: dict[str, Any] = {}
    for key, item in value.items():
        if not isinstance(key, str) or key == TAG:
            # JSON objects have only text keys, and an object with the key TAG is a tagged value.
            pairs = [[_encode_key(k), _encode(v)] for k, v in value.items()]
            return {TAG: "dict", "v": pairs}
        # A key of a subclass of str, such as a member of an enum, is encoded as its text.
        name = key if type(key) is str else str.__str__(key)
        encoded_values[name] = item if type(item) in PLAIN else _encode(item)
    return encoded_values


def _encode_key(value: Any) -> Any:
    """Encode the key of a dict; raise if the decoded key would not be hashable.

    A named tuple stays a tuple as a key, because a mapping is not hashable.
    """
    encoded = _tagged_items("tuple", value) if isinstance(value, tuple) else _encode(value)
    if not _stays_hashable(encoded):
        raise UnsupportedValueError(
            f"a dict with keys of type {kind_name(value)} cannot be passed; use text or numbers"
        )
    return encoded


def _stays_hashable(encoded: Any) -> bool:
    """Return True if the decoded form of an encoded value is hashable.

    Lists, dicts, sets, and tuples that contain any of these are not hashable.
    """
    if isinstance(encoded, list):
        return False
    if not isinstance(encoded, dict):
        return True
    record = cast("dict[str, Any]", encoded)
    tag = record.get(TAG)
    if tag == "tuple":
        return all(_stays_hashable(item) for item in record["v"])
    return tag not in (None, "dict", "set")  # None: a dict whose keys are all texts


def _encode_other(value: Any) -> Any:
    """Encode a value whose type has no encoder of its own, such as an instance of a subclass.

    Raises:
        UnsupportedValueError: If the type is not supported.
    """
    if isinstance(value, dict):
        return encode_mapping(cast("dict[Any, Any]", value))
    if isinstance(value, list):
        return [_encode(item) for item in cast("list[Any]", value)]
    if kind_name(value) in _MISSING:  # before the encoders: a NaT of pandas is a datetime, too
        return None
    # Test for an enum before texts and numbers, because a member may be one of these, too.
    if isinstance(value, enum.Enum):
        return _encode(value.value)
    # A Timestamp or Timedelta of pandas is also a datetime or timedelta of Python. The encoder for
    # these types would drop the nanoseconds.
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise UnsupportedValueError("a time with nanoseconds cannot be passed; pass it as text")
    for base, encoder in ENCODERS.items():
        if isinstance(value, base):
            return encoder(value)
    for base in (int, float, str):
        if isinstance(value, base):
            return base(value)
    if isinstance(value, pathlib.PurePath):
        return {TAG: "path", "v": str(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: _encode(getattr(value, name)) for name in names}
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return _encode(dump())
    if isinstance(value, Mapping):
        return encode_mapping(cast("Mapping[Any, Any]", value))
    if kind_name(value) in _LIST_LIKE:
        return [_encode(item) for item in cast("Iterable[Any]", value)]
    if isinstance(value, AbstractSet):
        return _encode_set("set", value)
    if isinstance(value, io.IOBase):
        raise UnsupportedValueError("an open file cannot be passed; pass what its read() gives")
    raise UnsupportedValueError(
        f"a value of type {kind_name(value)} cannot be passed; use plain data: numbers, text, "
        "bytes, dates, lists, sets, tuples or dicts"
    )


def kind_name(value: Any) -> str:
    """Return the display name of a value's type."""
    return type(value).__name__


def _encode_decimal(value: decimal.Decimal) -> dict[str, str]:
    text = str(value)
    problem = ""
    if abs(value.adjusted()) > _MAX_POWER:
        problem = f"beyond 1E±{_MAX_POWER}"
    elif len(text) > _MAX_SHORT:
        problem = f"of more than {_MAX_SHORT:,} characters"
    if problem:
        raise UnsupportedValueError(
            f"a Decimal {problem} cannot be passed; round it, or pass it as text"
        )
    return {TAG: "decimal", "v": text}


# True while named tuples are encoded as mappings. A context variable instead of a parameter,
# because all encoders take the value alone.
_NAMED: ContextVar[bool] = ContextVar("delf_named", default=False)


def _encode_tuple(value: Any) -> dict[str, Any]:
    """Encode a tuple; while ``_NAMED`` is set, a named tuple becomes a mapping."""
    names: Any = getattr(value, "_fields", None)
    if not isinstance(names, tuple) or not _NAMED.get():
        return _tagged_items("tuple", value)
    return encode_mapping(dict(zip(cast("tuple[str, ...]", names), value, strict=True)))


def _tagged_items(tag: str, items: Any) -> dict[str, Any]:
    return {TAG: tag, "v": [_encode(item) for item in items]}


def _encode_set(tag: str, items: Any) -> Any:
    """Encode a set; as a list if the decoded form of an item would not be hashable.

    The items are sorted so that the encoding is the same in every process: a set's own order
    depends on its history and on the process's hash seed.
    """
    if can_sort_directly(items):
        return {TAG: tag, "v": sorted(items)}
    # Other items, such as tuples, are sorted by the text of their encoding, which is slow.
    if estimate_size(items, _MAX_SET) > _MAX_SET:
        raise TooLargeError(
            f"a {tag} of so many tuples, or of several types, cannot be passed; pass it as a list"
        )
    try:
        encoded = sorted(map(_encode, items), key=repr)
    except ValueError as error:  # an integer of more digits than Python writes
        raise UnsupportedValueError(str(error)) from None
    if all(map(_stays_hashable, encoded)):
        return {TAG: tag, "v": encoded}
    return encoded


def can_sort_directly(items: Iterable[Any]) -> bool:
    """Return True if all items of a set are strings, or all are integers.

    Strings and integers can be sorted quickly, and without a key.
    """
    return set(map(type, items)) in _QUICKLY_SORTED


# The number of days below which ``total_seconds()`` keeps microseconds exactly.
_EXACT_DAYS = 90_000

_QUICKLY_SORTED: tuple[set[type], ...] = ({str}, {int})
_MISSING = frozenset({"NAType", "NaTType"})  # of pandas
_LIST_LIKE = frozenset({"deque", "dict_keys", "dict_values", "dict_items", "range"})


def _encode_datetime(value: dt.datetime) -> dict[str, Any]:
    encoded = {TAG: "datetime", "v": value.isoformat()}
    if value.tzinfo is not None:  # the text has the offset, which implies the fold
        return encoded
    return _with_fold(value, encoded)


def _with_fold(value: dt.datetime | dt.time, encoded: dict[str, Any]) -> dict[str, Any]:
    """Tag an encoded time with ``fold=1``: the later 02:30 of the night when summer time ends."""
    return {TAG: "later", "v": encoded} if value.fold else encoded


def _encode_timedelta(value: dt.timedelta) -> dict[str, Any]:
    """Encode a duration in seconds; if that is inexact, as days, seconds and microseconds."""
    if abs(value.days) < _EXACT_DAYS or not value.microseconds:
        return {TAG: "timedelta", "v": value.total_seconds()}
    return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}


ENCODERS: dict[type, Callable[[Any], Any]] = {
    tuple: _encode_tuple,
    dt.datetime: _encode_datetime,  # before its base class, date
    dt.date: lambda v: {TAG: "date", "v": v.isoformat()},
    dt.time: lambda v: _with_fold(v, {TAG: "time", "v": v.isoformat()}),
    dt.timedelta: _encode_timedelta,
    decimal.Decimal: _encode_decimal,
    bytes: lambda v: {TAG: "bytes", "v": base64.b64encode(v).decode("ascii")},
    bytearray: lambda v: {TAG: "bytes", "v": base64.b64encode(v).decode("ascii")},
    memoryview: lambda v: {TAG: "bytes", "v": base64.b64encode(v).decode("ascii")},
    set: lambda v: _encode_set("set", v),
    frozenset: lambda v: _encode_set("frozenset", v),
    uuid.UUID: lambda v: {TAG: "uuid", "v": str(v)},
    complex: lambda v: {TAG: "complex", "v": [v.real, v.imag]},
}
"""The encoders of types that JSON does not support; the first match is used."""


def _checked_list(value: Any) -> list[Any]:
    """Return an encoded list; raise for any other value.

    A string is refused, because each of its characters would become an item.
    """
    if type(value) is not list:
        raise ValueError("not a list")
    return cast("list[Any]", value)


def _short(value: Any) -> Any:
    """Raise for a text that is too long to parse quickly; return any other value unchanged."""
    if type(value) is str and len(value) > _MAX_SHORT:
        raise ValueError("too long")
    return value


def _decimal_of(value: Any) -> decimal.Decimal:
    """Parse a decimal; refuse exponents that would expand to gigabytes as an ``int``."""
    if type(value) is not str:
        raise ValueError("not a text")
    number = decimal.Decimal(_short(value))
    if abs(number.adjusted()) > _MAX_POWER:
        raise ValueError("too large or too small")
    return number


def _check_hashes(keys: list[Any]) -> list[Any]:
    """Return the keys; raise if many hashes collide, because building a set would take n² steps.

    A few collisions are normal: -1 and -2 have the same hash, and so have some tuples of them.
    """
    if len(keys) <= _MAX_COLLISIONS:
        return keys
    # Counting the keys of each hash takes long. First count all collisions: if there are few, no
    # single hash can have many.
    distinct_hashes = {hash(key) for key in keys}
    collision_count = len(keys) - len(distinct_hashes)
    if collision_count < _MAX_COLLISIONS:
        return keys
    [(_, key_count)] = Counter(map(hash, keys)).most_common(1)
    if key_count > _MAX_COLLISIONS:
        raise ValueError("too many keys of one hash")
    return keys


def _members(value: Any) -> list[Any]:
    """Return the members of an encoded set.

    Raises:
        ValueError: If building the set, or encoding the set later, would be slow.
    """
    items = _check_hashes(_checked_list(value))
    # Encoding a set sorts its items, which is slow unless all are strings or all are integers.
    is_slow_to_sort = not can_sort_directly(items)
    if is_slow_to_sort and estimate_size(items, _MAX_SET) > _MAX_SET:
        raise ValueError("too large")
    return items


def _dict_of(pairs: list[list[Any]]) -> dict[Any, Any]:
    # The keys are untrusted: with many equal hashes, making the dict would take too long.
    _check_hashes([key for key, _ in _checked_list(pairs)])
    return {key: item for key, item in pairs}  # noqa: C416 - pairs arrive as lists


DECODERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda v: tuple(_checked_list(v)),
    # The classes are looked up at each call, because a sandbox replaces them by classes with the
    # script's clock.
    "datetime": lambda v: dt.datetime.fromisoformat(_short(v)),
    "date": lambda v: dt.date.fromisoformat(_short(v)),
    "time": lambda v: dt.time.fromisoformat(_short(v)),
    "later": lambda v: v.replace(fold=1),
    "timedelta": lambda v: (
        dt.timedelta(*_checked_list(v)) if isinstance(v, list) else dt.timedelta(seconds=v)
    ),
    "decimal": _decimal_of,
    "bytes": base64.b64decode,
    "set": lambda v: set(_members(v)),
    "frozenset": lambda v: frozenset(_members(v)),
    "uuid": lambda v: uuid.UUID(_short(v)),
    "path": lambda v: pathlib.Path(_short(v)),
    "complex": lambda v: complex(*_checked_list(v)),
    "dict": _dict_of,
}


def _decode_tag(value: dict[str, Any]) -> Any:
    """Return the value that a JSON object encodes: an object without a tag is a plain dict."""
    tag = value.get(TAG)
    if tag is None:
        return value
    decoder = DECODERS.get(tag) if isinstance(tag, str) else None
    if decoder is None:
        raise ValueError(f"unknown value tag {str(tag)[:40]!r}")
    try:
        return decoder(value["v"])
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"malformed {tag} value: {type(error).__name__}") from None


def _make_writer() -> Callable[[Any], str]:
    """Make a JSON encoding function; the standard encoder rebuilds its C part for each call."""
    make_encoder: Any = getattr(json.encoder, "c_make_encoder", None)
    encoder = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":"))
    if make_encoder is None:
        return encoder.encode
    encode_string: Any = json.encoder.encode_basestring
    # The positional arguments are markers (None: no check for cycles), default, encoder, indent,
    # key_separator, item_separator, sort_keys, skipkeys, allow_nan.
    encode_pieces = make_encoder(
        None, encoder.default, encode_string, None, ":", ",", False, False, True
    )
    join = "".join
    return lambda value: join(encode_pieces(value, 0))


# Made once, for speed, and so that a script that patches the json module cannot change them.
_write = _make_writer()
_read_plain = json.JSONDecoder().decode
_read_tagged = json.JSONDecoder(object_hook=_decode_tag).decode
