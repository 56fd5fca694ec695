"""Checks spans against the YAML in which OpenTelemetry's conventions are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml12

HERE = Path(__file__).with_name("conventions")
KINDS = {"client": 3, "internal": 1}
"""Of a span, as the protocol numbers them."""

TYPES = {"string": str, "int": int, "double": float, "boolean": bool, "any": str}
SPANS = {
    "chat": "span.gen_ai.inference.client",
    "invoke_agent": "span.gen_ai.invoke_agent.internal",
    "execute_tool": "span.gen_ai.execute_tool.internal",
}


def _groups(name: str) -> dict[str, dict[str, Any]]:
    document: Any = yaml12.parse_yaml((HERE / f"{name}.yaml").read_text())
    return {group["id"]: group for group in document["groups"]}


class Conventions:
    """OpenTelemetry's semantic conventions for spans and metrics of generative AI."""

    def __init__(self) -> None:
        self._spans = _groups("spans")
        self._metrics = _groups("metrics")
        registry = _groups("registry").values()
        self._types = {
            attribute["id"]: attribute["type"]
            for group in registry
            for attribute in group["attributes"]
        }

    def attributes(self, group: dict[str, Any], among: dict[str, Any]) -> dict[str, Any]:
        """Return a group's attributes and those it extends, each with its requirement level."""
        base = among.get(group.get("extends", ""))
        found = {} if base is None else self.attributes(base, among)
        for item in group.get("attributes", ()):
            level = item.get("requirement_level", found.get(item["ref"], "recommended"))
            found[item["ref"]] = level
        return found

    def check_span(self, span: dict[str, Any], *, content: bool = False) -> list[str]:
        """Return the faults of a span that a collector received; none for a span of delf's own."""
        given = span["attributes"]
        operation = given.get("gen_ai.operation.name")
        if operation is None:
            return [] if span["name"].startswith("delf.") else [f"{span['name']}: no operation"]
        group = self._spans[SPANS[operation]]
        known = self.attributes(group, self._spans)
        wrong = [
            f"{span['name']}: {name} is missing"
            for name, level in known.items()
            if level == "required" and name not in given
        ]
        if span["kind"] != KINDS[group["span_kind"]]:
            wrong.append(f"{span['name']}: kind {span['kind']}")
        if span["failed"] and "error.type" not in given:
            wrong.append(f"{span['name']}: failed without error.type")
        subject = {
            "chat": "request.model",
            "invoke_agent": "agent.name",
            "execute_tool": "tool.name",
        }
        if span["name"] != f"{operation} {given[f'gen_ai.{subject[operation]}']}":
            wrong.append(f"{span['name']}: is named otherwise")
        for name, value in given.items():
            wrong += self._check_attribute(span["name"], name, value, known, content=content)
        return wrong

    def _check_attribute(
        self, span: str, name: str, value: Any, known: dict[str, Any], *, content: bool
    ) -> list[str]:
        if name.startswith("delf.") or name == "error.type":
            return []
        if name not in self._types:
            return [f"{span}: {name} is not in the registry"]
        kind = self._types[name]
        wanted = TYPES.get(kind, str) if isinstance(kind, str) else str
        wrong = [] if isinstance(value, wanted) else [f"{span}: {name} is {value!r}, not a {kind}"]
        if known.get(name) == "opt_in" and not content:
            wrong.append(f"{span}: {name} was not opted into")
        return wrong

    def check_metric(self, metric: dict[str, Any]) -> list[str]:
        """Return the faults of a metric that a collector received."""
        group = self._metrics[f"metric.{metric['name']}"]
        required = [
            name
            for name, level in self.attributes(group, self._metrics).items()
            if level == "required"
        ]
        wrong = [] if metric["unit"] == group["unit"] else [f"{metric['name']}: {metric['unit']}"]
        for point in metric["points"]:
            wrong += [
                f"{metric['name']}: {name} is missing" for name in required if name not in point
            ]
        return wrong
