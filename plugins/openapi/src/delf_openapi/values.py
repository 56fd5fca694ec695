"""Values of scripts, checked against schemas before anything is sent."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, cast

from delf.errors import did_you_mean
from delf_openapi.document import Document
from delf_openapi.failures import SpecError
from delf_openapi.patterns import matches
from delf_openapi.plain import Misfit, without_bytes

_MAX_SAME: Final = 60
_MAX_VISITS: Final = 200_000
_SHOWN_CHARS: Final = 60
_MAX_COMPARED: Final = 1000
_KINDS: Final = {"string": "text", "integer": "a whole number", "number": "a number"}
_KINDS_MORE: Final = {"boolean": "True or False", "array": "a list", "object": "a dict"}


class Checker:
    """Checks values against schemas.

    Args:
        document: Follows references.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._visits = 0

    def parameter(self, schema: Any, value: Any, path: str) -> Any:
        """A parameter's value. On the wire all is text, so 5 and "5" are one.

        Raises:
            Misfit: When it does not fit.
        """
        self._visits = 0
        value = self._loosen(schema, value)
        self._check(schema, value, path, 0)
        return value

    def content(self, schema: Any, value: Any, path: str) -> None:
        """A part of a body.

        Raises:
            Misfit: When it does not fit.
        """
        self._visits = 0
        self._check(schema, value, path, 0)

    def _loosen(self, schema: Any, value: Any, depth: int = 0) -> Any:
        try:
            found = self._document.resolve(schema)
        except SpecError:
            return value
        kinds = self._kinds(found)
        if not kinds or depth > 3:
            return value
        if isinstance(value, list):
            items: Any = found.get("items", {})
            listed = cast("list[Any]", value)
            return [self._loosen(items, item, depth + 1) for item in listed]
        if isinstance(value, dict):
            return cast("Any", value)
        if kinds == {"array"}:
            return [self._loosen(found.get("items", {}), value, depth + 1)]
        if isinstance(value, bool):
            return value if "boolean" in kinds or "string" not in kinds else str(value).lower()
        if isinstance(value, (int, float)) and kinds == {"string"}:
            return str(value)
        if isinstance(value, str) and "string" not in kinds:
            return _from_text(value, kinds)
        return value

    def _kinds(self, found: Mapping[str, Any]) -> set[str]:
        kind = found.get("type")
        if isinstance(kind, list):
            return {str(k) for k in cast("list[Any]", kind)} - {"null"}
        return {kind} if isinstance(kind, str) else set()

    def _check(self, schema: Any, value: Any, path: str, same: int) -> None:
        self._visits += 1
        if schema is False:
            raise Misfit(path, "must be left out")
        if schema is True or schema is None or same > _MAX_SAME or self._visits > _MAX_VISITS:
            return  # what cannot be checked here, the service checks
        try:
            found = self._document.resolve(schema)
        except SpecError:
            return
        if value is None and self._takes_none(found):
            return
        self._check_type(found, value, path)
        if "const" in found and value != found["const"]:
            raise Misfit(path, f"must be {_shown(found['const'])}", other=True)
        _check_enum(found, value, path)
        if isinstance(value, str):
            _check_text(found, value, path)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            _check_number(found, value, path)
        elif isinstance(value, list):
            self._check_list(found, cast("list[Any]", value), path)
        elif isinstance(value, dict):
            self._check_dict(found, cast("dict[str, Any]", value), path)
        self._check_combined(found, value, path, same)

    def _takes_none(self, found: Mapping[str, Any]) -> bool:
        kind = found.get("type")
        if found.get("nullable") is True or kind == "null":
            return True
        if isinstance(kind, list):
            return "null" in kind
        return None in found["enum"] if isinstance(found.get("enum"), list) else False

    def _check_type(self, found: Mapping[str, Any], value: Any, path: str) -> None:
        kind: Any = found.get("type")
        kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
        if kind is None or any(_is_of(k, value) for k in kinds):
            return
        names = [{**_KINDS, **_KINDS_MORE}.get(k, "None") for k in kinds]
        raise Misfit(path, f"must be {' or '.join(names)}, not {_name_of(value)}")

    def _check_list(self, found: Mapping[str, Any], value: list[Any], path: str) -> None:
        least, most = found.get("minItems"), found.get("maxItems")
        if isinstance(least, int) and len(value) < least:
            raise Misfit(path, f"needs at least {least} items, not {len(value)}")
        if isinstance(most, int) and len(value) > most:
            raise Misfit(path, f"takes at most {most} items, not {len(value)}")
        if found.get("uniqueItems") is True and _has_twins(value):
            raise Misfit(path, "must not hold the same item twice")
        first: Any = found.get("prefixItems")
        heads = cast("list[Any]", first) if isinstance(first, list) else []
        items = found.get("items", True)
        for index, item in enumerate(value):
            self._check(heads[index] if index < len(heads) else items, item, f"{path}[{index}]", 0)

    def _check_dict(self, found: Mapping[str, Any], value: dict[str, Any], path: str) -> None:
        listed: Any = found.get("properties")
        properties = cast("dict[str, Any]", listed) if isinstance(listed, dict) else {}
        required: Any = found.get("required")
        for name in cast("list[Any]", required) if isinstance(required, list) else []:
            if not isinstance(name, str) or name in value:
                continue
            if not self._is_read_only(properties.get(name)):
                raise Misfit(path, f"needs {name!r}")
        extra: Any = found.get("additionalProperties", True)
        patterns: Any = found.get("patternProperties")
        for name, part in value.items():
            if name in properties:
                self._check(properties[name], part, f"{path}.{name}", 0)
            elif extra is False and not patterns:
                close = did_you_mean(name, [known[:_SHOWN_CHARS] for known in properties])
                some = ", ".join(known[:_SHOWN_CHARS] for known in list(properties)[:20])
                raise Misfit(path, f"takes no {_shown(name)}{close or f'; it takes: {some}'}")
            elif isinstance(extra, dict):
                self._check(cast("Any", extra), part, f"{path}.{name}", 0)
        least, most = found.get("minProperties"), found.get("maxProperties")
        if isinstance(least, int) and len(value) < least:
            raise Misfit(path, f"needs at least {least} entries")
        if isinstance(most, int) and len(value) > most:
            raise Misfit(path, f"takes at most {most} entries, not {len(value)}")

    def _is_read_only(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return False
        try:
            return self._document.resolve(schema).get("readOnly") is True
        except SpecError:
            return False

    def _check_combined(self, found: Mapping[str, Any], value: Any, path: str, same: int) -> None:
        parts: Any = found.get("allOf")
        for part in cast("list[Any]", parts) if isinstance(parts, list) else []:
            self._check(part, value, path, same + 1)
        for word in ("anyOf", "oneOf"):
            choices: Any = found.get(word)
            if isinstance(choices, list) and choices:
                self._check_choices(cast("list[Any]", choices), value, path, same)

    def _check_choices(self, choices: list[Any], value: Any, path: str, same: int) -> None:
        misfits: list[Misfit] = []
        for choice in choices:
            try:
                self._check(choice, value, path, same + 1)
            except Misfit as misfit:
                misfits.append(misfit)
            else:
                return
        # The alternative that was come furthest into is likely the one that was meant.
        best = max(misfits, key=lambda m: (len(m.path) > len(path), not m.other, len(m.path)))
        reasons = list(dict.fromkeys(m.reason for m in misfits if m.path == best.path))[:4]
        raise Misfit(best.path, "; or ".join(reasons), other=best.other)


def _from_text(text: str, kinds: set[str]) -> Any:
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        if "integer" in kinds:
            return int(text)
        if "number" in kinds:
            number = float(text)
            return number if math.isfinite(number) else text
    except ValueError:
        return text
    return text


def _is_of(kind: Any, value: Any) -> bool:
    if kind == "string":
        return isinstance(value, (str, bytes))
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return kind == "number" or isinstance(value, int) or value.is_integer()
    if kind == "array":
        return isinstance(value, list)
    if kind == "object":
        return isinstance(value, dict)
    return value is None if kind == "null" else True


def _name_of(value: Any) -> str:
    names = {str: "text", int: "a whole number", float: "a number", bool: "True or False"}
    more = {list: "a list", dict: "a dict", bytes: "bytes", type(None): "None"}
    kind = cast("type[Any]", type(value))
    return {**names, **more}.get(kind, kind.__name__)


def _check_enum(found: Mapping[str, Any], value: Any, path: str) -> None:
    listed = found.get("enum")
    if not isinstance(listed, list) or not listed:
        return
    values = cast("list[Any]", listed)
    if any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in values):
        return
    if isinstance(value, (int, float, bool)) and str(value).lower() in values:
        return
    shown = ", ".join(map(_shown, values[:20])) + (", …" if len(values) > 20 else "")
    texts = [v for v in values if isinstance(v, str) and len(v) <= _SHOWN_CHARS]
    close = did_you_mean(value, texts) if isinstance(value, str) else ""
    raise Misfit(path, f"must be one of {shown}{close}", other=True)


def _shown(value: Any) -> str:
    """A value of a specification in a message."""
    text = repr(value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN_CHARS + 2 else f"{text[:_SHOWN_CHARS]}…"


def _has_twins(items: list[Any]) -> bool:
    """Tell whether a list holds an item twice; what is too long to find out, the service finds."""
    seen: set[str] = set()
    for item in items[:_MAX_COMPARED]:
        mark = json.dumps(without_bytes(item), sort_keys=True)
        if mark in seen:
            return True
        seen.add(mark)
    return False


def _check_text(found: Mapping[str, Any], value: str, path: str) -> None:
    least, most = found.get("minLength"), found.get("maxLength")
    if isinstance(least, int) and len(value) < least:
        what = "must not be empty" if least == 1 else f"needs at least {least} characters"
        raise Misfit(path, what)
    if isinstance(most, int) and len(value) > most:
        raise Misfit(path, f"takes at most {most} characters, not {len(value)}")
    pattern = found.get("pattern")
    if isinstance(pattern, str) and not matches(pattern, value):
        raise Misfit(path, f"must match the pattern {pattern[:120]}")
    form = found.get("format")
    if form == "uuid" and not _UUID.match(value):
        raise Misfit(path, "must be a UUID")
    if form == "date" and not re.match(r"^\d{4}-\d\d-\d\d$", value):
        raise Misfit(path, "must be a date, as 2026-01-31")


_UUID: Final = re.compile(
    r"^(urn:uuid:)?\{?[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}\}?$"
)


def _check_number(found: Mapping[str, Any], value: float, path: str) -> None:
    low: Any = found.get("minimum")
    high: Any = found.get("maximum")
    over: Any = found.get("exclusiveMinimum")
    under: Any = found.get("exclusiveMaximum")
    if _is_number(low) and (value < low or (over is True and value == low)):
        raise Misfit(path, f"must be {'more than' if over is True else 'at least'} {low}")
    if _is_number(high) and (value > high or (under is True and value == high)):
        raise Misfit(path, f"must be {'less than' if under is True else 'at most'} {high}")
    if _is_number(over) and value <= over:
        raise Misfit(path, f"must be more than {over}")
    if _is_number(under) and value >= under:
        raise Misfit(path, f"must be less than {under}")
    step: Any = found.get("multipleOf")
    # Fractions are not exact, and what is nearly a multiple is left to the service.
    if isinstance(step, int) and step > 0 and isinstance(value, int) and value % step:
        raise Misfit(path, f"must be a multiple of {step}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
