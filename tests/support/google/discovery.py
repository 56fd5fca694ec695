"""The vendor's discovery documents: which methods there are, and what fits them."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import functools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

DOCUMENTS = {
    "gmail": "gmail.v1",
    "drive": "drive.v3",
    "sheets": "sheets.v4",
    "docs": "docs.v1",
    "calendar": "calendar.v3",
}


@functools.cache
def document(name: str) -> dict[str, Any]:
    """A discovery document as the vendor's client ships it."""
    import googleapiclient.discovery_cache as cache

    folder = Path(cache.__file__).parent / "documents"
    return json.loads((folder / f"{DOCUMENTS[name]}.json").read_text(encoding="utf-8"))


@functools.cache
def apis() -> list[Api]:
    """All APIs, read once in a process."""
    return [Api(name) for name in DOCUMENTS]


class BadRequest(Exception):
    """Raised if a request does not fit the document."""


@dataclass
class Method:
    """One method of an API."""

    api: Api = field(repr=False)
    id: str
    verb: str
    path: str
    spec: dict[str, Any] = field(repr=False)

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        parts = re.split(r"(\{\+?[\w.]+\})", self.path)
        return re.compile(
            "".join(
                f"(?P<{part.strip('{}+')}>{'.+' if '+' in part else '[^/]+'})"
                if part.startswith("{")
                else re.escape(part)
                for part in parts
            )
        )

    @property
    def literal(self) -> int:
        """The number of fixed parts of the path: paths with more are tried first."""
        return len(re.sub(r"\{[^}]*\}", "", self.path))

    def arguments(self, path: dict[str, str], query: list[tuple[str, str]]) -> dict[str, Any]:
        """The parameters, checked and converted."""
        known = self.spec.get("parameters", {})
        common = self.api.document["parameters"]
        found: dict[str, Any] = {name: unquote(value) for name, value in path.items()}
        for name, text in query:
            if name in known and known[name]["location"] == "query":
                value = _parameter(name, text, known[name])
                if known[name].get("repeated"):
                    found.setdefault(name, []).append(value)
                elif name in found:
                    raise BadRequest(f"parameter {name!r} is given twice")
                else:
                    found[name] = value
            elif name in common:
                if name != "fields" and name != "alt" and name not in ("prettyPrint", "uploadType"):
                    raise BadRequest(f"parameter {name!r} is not for this server")
                found[name] = text
            elif name != "upload_id":
                raise BadRequest(
                    f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.'
                )
        for name, spec in known.items():
            if spec.get("required") and name not in found:
                raise BadRequest(f"Required parameter: {name}")
        return found


class Api:
    """One API: its methods and schemas."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.document = document(name)
        self.schemas: dict[str, Any] = self.document["schemas"]
        self.methods = sorted(self._methods(self.document), key=lambda m: -m.literal)

    def _methods(self, node: dict[str, Any]) -> list[Method]:
        found = [
            Method(
                self,
                spec["id"],
                spec["httpMethod"],
                self.document["servicePath"] + spec["path"],
                spec,
            )
            for spec in node.get("methods", {}).values()
        ]
        for inner in node.get("resources", {}).values():
            found += self._methods(inner)
        return found

    def find(self, verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
        for method in self.methods:
            if method.verb == verb and (match := method.pattern.fullmatch(path)):
                return method, match.groupdict()
        return None

    # -- schemas ------------------------------------------------------------------------

    def check(self, reference: str, value: Any, where: str = "") -> None:
        """Raise where a value does not fit a schema; unknown fields do not."""
        self._check({"$ref": reference}, value, where)

    def _check(self, spec: dict[str, Any], value: Any, where: str) -> None:
        if "$ref" in spec:
            spec = self.schemas[spec["$ref"]]
        kind = spec.get("type", "any")
        if value is None or kind == "any":
            return
        if kind == "object" or "properties" in spec:
            self._check_object(spec, value, where)
        elif kind == "array":
            if not isinstance(value, list):
                raise BadRequest(f"Invalid value at '{where}' (a list), {value!r:.80}")
            for index, item in enumerate(value):
                self._check(spec["items"], item, f"{where}[{index}]")
        else:
            _check_scalar(spec, value, where)

    def _check_object(self, spec: dict[str, Any], value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise BadRequest(f"Invalid value at '{where}' (an object), {value!r:.80}")
        known = spec.get("properties", {})
        extra = spec.get("additionalProperties")
        for name, item in value.items():
            place = f"{where}.{name}" if where else name
            if name in known:
                self._check(known[name], item, place)
            elif extra is not None:
                self._check(extra, item, place)
            else:
                raise BadRequest(
                    f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
                )

    # -- partial responses --------------------------------------------------------------

    def partial(self, reference: str | None, value: Any, mask: str) -> Any:
        """A response with the fields of a mask only; a field that is not there is refused."""
        tree = _parse_mask(mask)
        spec = {"$ref": reference} if reference else {}
        self._check_mask(spec, tree, mask)
        return _masked(value, tree)

    def _check_mask(self, spec: dict[str, Any], tree: dict[str, Any], mask: str) -> None:
        if "$ref" in spec:
            spec = self.schemas[spec["$ref"]]
        while spec.get("type") == "array":
            spec = spec["items"]
            if "$ref" in spec:
                spec = self.schemas[spec["$ref"]]
        known = spec.get("properties")
        if known is None:
            return
        for name, inner in tree.items():
            if name == "*":
                continue
            if name not in known:
                raise BadRequest(f"Invalid field selection {name} in {mask}")
            if inner:
                self._check_mask(known[name], inner, mask)


def _parse_mask(mask: str) -> dict[str, Any]:
    position = 0

    def group() -> dict[str, Any]:
        nonlocal position
        found: dict[str, Any] = {}
        while True:
            names = [name()]
            while position < len(mask) and mask[position] in "/.":
                position += 1
                names.append(name())
            inner: dict[str, Any] = {}
            if position < len(mask) and mask[position] == "(":
                position += 1
                inner = group()
                if position >= len(mask) or mask[position] != ")":
                    raise BadRequest(f"Invalid field selection {mask}")
                position += 1
            node = found
            for part in names[:-1]:
                node = node.setdefault(part, {})
            node[names[-1]] = inner
            if position < len(mask) and mask[position] == ",":
                position += 1
                continue
            return found

    def name() -> str:
        nonlocal position
        match = re.compile(r"\s*([\w*]+)\s*").match(mask, position)
        if match is None:
            raise BadRequest(f"Invalid field selection {mask}")
        position = match.end()
        return match[1]

    tree = group()
    if position != len(mask):
        raise BadRequest(f"Invalid field selection {mask}")
    return tree


def _masked(value: Any, tree: dict[str, Any]) -> Any:
    if not tree:
        return value
    if isinstance(value, list):
        return [_masked(item, tree) for item in value]
    if not isinstance(value, dict):
        return value
    if "*" in tree:
        return {k: _masked(v, tree["*"]) for k, v in value.items()}
    return {k: _masked(value[k], inner) for k, inner in tree.items() if k in value}


def _parameter(name: str, text: str, spec: dict[str, Any]) -> Any:
    kind = spec["type"]
    value: Any = text
    if kind == "integer":
        if not re.fullmatch(r"-?\d+", text):
            raise BadRequest(f"Invalid value at '{name}' ({spec.get('format')}), {text!r}")
        value = int(text)
        low, high = int(spec.get("minimum", -(2**31))), int(spec.get("maximum", 2**32 - 1))
        if not low <= value <= high:
            raise BadRequest(
                f"Invalid value '{value}'. Values must be within the range: [{low}, {high}]"
            )
    elif kind == "boolean":
        if text not in ("true", "false"):
            raise BadRequest(f"Invalid value at '{name}' (TYPE_BOOL), {text!r}")
        value = text == "true"
    elif spec.get("format") in ("date-time", "google-datetime"):
        _check_scalar({"type": "string", "format": "date-time"}, text, name)
        if not re.search(r"(Z|[+-]\d\d:\d\d)$", text):
            raise BadRequest(f"Invalid value at '{name}' (date-time without an offset), {text!r}")
    if "enum" in spec and text not in spec["enum"]:
        raise BadRequest(f"Invalid value at '{name}', {text!r}")
    if "pattern" in spec and not re.fullmatch(spec["pattern"], text):
        raise BadRequest(f"Invalid value at '{name}', {text!r}")
    return value


def _check_scalar(spec: dict[str, Any], value: Any, where: str) -> None:
    kind, form = spec["type"], spec.get("format")
    good = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, (int, float)) and not isinstance(value, bool),
    }[kind]
    if good and kind == "string":
        good = _string_fits(value, form) and value in spec.get("enum", (value,))
    if good and form == "int32":
        good = -(2**31) <= value < 2**31
    if good and form == "uint32":
        good = 0 <= value < 2**32
    if not good:
        raise BadRequest(f"Invalid value at '{where}' ({form or kind}), {value!r:.80}")


def _string_fits(value: str, form: str | None) -> bool:
    try:
        if form in ("int64", "uint64"):
            return int(value) >= (0 if form == "uint64" else -(2**63))
        if form == "byte":
            base64.b64decode(
                value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True
            )
        if form == "date":
            dt.date.fromisoformat(value)
        if form == "date-time":
            return "T" in value and dt.datetime.fromisoformat(value) is not None
    except (ValueError, binascii.Error):
        return False
    return True
