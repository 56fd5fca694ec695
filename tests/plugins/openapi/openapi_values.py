"""Values that fit schemas, made at random from a seed, to call every operation of an API with."""

from __future__ import annotations

import random
import re
from typing import Any

WORDS = ("alpha", "beta x", "γάμμα", "a/b", "q&r=s", "100%", "e+f", "semi;colon", "com,ma", "[x]")
LIKELY = ("abc", "1", "123456", "2026-01-31", "a@b.example", "EUR", "https://a.example/b", "0xab12")
"""Some of these fit most patterns; where none does, the operation is not judged."""
FORMATS = {
    "date-time": "2026-01-31T12:30:00Z",
    "date": "2026-01-31",
    "time": "12:30:00Z",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "email": "ada@example.org",
    "uri": "https://example.org/a?b=c",
    "url": "https://example.org/a?b=c",
    "hostname": "example.org",
    "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::7",
    "byte": "aGVsbG8=",
}


class Giver:
    """Makes values for the schemas of one specification.

    Args:
        tree: The specification, in the form of OpenAPI 3.
        seed: The seed of all random choices.
    """

    def __init__(self, tree: dict[str, Any], seed: object) -> None:
        self.tree = tree
        self.random = random.Random(str(seed))

    def resolve(self, node: Any) -> dict[str, Any]:
        hops = 0
        while isinstance(node, dict) and isinstance(node.get("$ref"), str) and hops < 50:
            rest = {k: v for k, v in node.items() if k in ("nullable", "readOnly")}
            target: Any = self.tree
            for token in node["$ref"].removeprefix("#").split("/")[1:]:
                token = re.sub("%([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), token)
                token = token.replace("~1", "/").replace("~0", "~")
                target = target[int(token)] if isinstance(target, list) else target[token]
            node = {**target, **rest} if rest else target
            hops += 1
        return node if isinstance(node, dict) else {}

    def give(self, schema: Any, depth: int = 0) -> Any:
        found = self.flat(schema)
        if "const" in found:
            return found["const"]
        if found.get("enum"):
            values = [v for v in found["enum"] if v not in (None, "")] or found["enum"]
            return self.random.choice(values)
        for word in ("oneOf", "anyOf"):
            if found.get(word) and not found.get("properties"):
                return self.give(self._choice(found[word], depth), depth)
        kind = found.get("type")
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null")
        if kind == "array" or (kind is None and "items" in found):
            return self._list(found, depth)
        if kind in ("object", None) and (
            kind == "object" or found.get("properties") or found.get("additionalProperties")
        ):
            return self._dict(found, depth)
        if kind == "null":
            return None
        if kind == "boolean":
            return self.random.random() < 0.5
        if kind in ("integer", "number"):
            return self._number(found, kind)
        return self._text(found)

    def flat(self, schema: Any, depth: int = 0) -> dict[str, Any]:
        """Return a schema with its ``allOf`` merged."""
        found = dict(self.resolve(schema))
        parts = found.pop("allOf", None)
        for part in parts or ():
            if depth > 20:
                break
            other = self.flat(part, depth + 1)
            for key, value in other.items():
                if key == "properties":
                    own = dict(found.get("properties") or {})
                    for name, inner in value.items():
                        own[name] = {"allOf": [own[name], inner]} if name in own else inner
                    found["properties"] = own
                elif key == "required":
                    found["required"] = list({*(found.get("required") or []), *value})
                elif key == "enum" and "enum" in found:
                    found["enum"] = [v for v in found["enum"] if v in value]
                else:
                    found.setdefault(key, value)
        return found

    def _choice(self, choices: list[Any], depth: int) -> Any:
        plain = [c for c in choices if self.resolve(c).get("type") != "null"]
        if depth > 3:
            simple = [c for c in plain if self.resolve(c).get("type") in ("string", "integer")]
            plain = simple or plain
        return self.random.choice(plain or choices)

    def _list(self, found: dict[str, Any], depth: int) -> list[Any]:
        least = found.get("minItems", 0)
        most = min(found.get("maxItems", 3), max(least, 3))
        count = max(least, 0 if depth > 4 else self.random.randint(1, max(1, most)))
        count = min(count, found.get("maxItems", count))
        items = [
            self.give(found.get("items") or {"type": "string"}, depth + 1) for _ in range(count)
        ]
        if found.get("uniqueItems"):
            items = [v for i, v in enumerate(items) if v not in items[:i]]
        return items

    def _dict(self, found: dict[str, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        required = set(found.get("required") or [])
        properties = found.get("properties") or {}
        for name, part in properties.items():
            inner = self.flat(part)
            if inner.get("readOnly"):
                continue
            if name in required or (depth < 4 and self.random.random() < 0.5):
                result[name] = self.give(part, depth + 1)
        extra = found.get("additionalProperties")
        if not properties and extra is not False:
            inner = extra if isinstance(extra, dict) and extra else {"type": "string"}
            for index in range(max(1, found.get("minProperties", 1)) if depth < 5 else 0):
                result[f"key{index}"] = self.give(inner, depth + 1)
        for word in ("oneOf", "anyOf"):
            if found.get(word):
                choice = self.flat(self.random.choice(found[word]))
                for name in choice.get("required") or []:
                    if name not in result and name in properties:
                        result[name] = self.give(properties[name], depth + 1)
        return result

    def _number(self, found: dict[str, Any], kind: str) -> Any:
        low, high = found.get("minimum"), found.get("maximum")
        over, under = found.get("exclusiveMinimum"), found.get("exclusiveMaximum")
        low = over + 1 if isinstance(over, (int, float)) and not isinstance(over, bool) else low
        high = (
            under - 1 if isinstance(under, (int, float)) and not isinstance(under, bool) else high
        )
        low = (low + 1 if over is True else low) if low is not None else None
        if low is None:
            low = min(1, high) if high is not None else 1
        high = max(low, high if high is not None else low + 50)
        step = found.get("multipleOf")
        if kind == "integer" or step:
            value = self.random.randint(
                int(-(-low // 1)), max(int(-(-low // 1)), int(min(high, 2**31)))
            )
            if step:
                value = value // step * step or step
            return value
        return float(low) if low == high else round(low + (min(high, low + 50) - low) * 0.25, 2)

    def _text(self, found: dict[str, Any]) -> str:
        pattern, form = found.get("pattern"), found.get("format")
        if form in FORMATS and not pattern:
            return FORMATS[form]
        if form == "binary":
            return "binary \x00\x01 data"
        least, most = found.get("minLength", 0), found.get("maxLength")
        if pattern:
            of_twilio = re.sub("[^A-Z]", "", pattern)[:2] + 32 * "0"
            texts = (*LIKELY, of_twilio, "x" * max(1, least))
            return next((text for text in texts if re.search(pattern, text)), texts[-1])
        text = self.random.choice(WORDS)
        while len(text) < least:
            text += "x" * (least - len(text))
        return text if most is None else text[:most].strip() or "x"[:most]
