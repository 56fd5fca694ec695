"""Calls every operation of a specification, and lets openapi-core judge each request."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from openapi_schema_validator import (
    OAS30Validator,
    OAS30WriteValidator,
    OAS31Validator,
    oas30_format_checker,
    oas31_format_checker,
)
from referencing import Registry
from referencing.jsonschema import DRAFT202012
from werkzeug.datastructures import Headers, ImmutableMultiDict
from werkzeug.formparser import MultiPartParser
from werkzeug.http import parse_options_header

from delf.errors import DelfError
from delf_openapi import APITool
from delf_openapi.document import Document
from delf_openapi.loading import load_api
from delf_openapi.operations import Operation, read_operation
from support.raw_http import Reply, Seen, raw_server

from .openapi_values import Giver

TRIES = 16
CONFIG = Config(spec_validator_cls=None)  # pyright: ignore[reportArgumentType]


class Arrived:
    """A received request, in the form that openapi-core reads."""

    def __init__(self, seen: Seen, host: str, query_pairs: list[tuple[str, str]]) -> None:
        query = ImmutableMultiDict(query_pairs)
        cookies = dict(
            pair.strip().split("=", 1)
            for pair in (seen.header("cookie") or "").split(";")
            if "=" in pair
        )
        self.parameters = RequestParameters(
            query=query, header=Headers(seen.headers), cookie=ImmutableMultiDict(cookies)
        )
        self.host_url = host
        # Decoded, as frameworks hand it over, but for the slash that is part of a value.
        self.path = "%2F".join(unquote(part) for part in seen.path.split("%2F"))
        self.path_pattern = None
        self.method = seen.method.lower()
        kind = seen.header("content-type") or ""
        self.content_type = "application/json" if kind.endswith("+json") else kind
        self.body = seen.body or None


@dataclass
class Verdict:
    """The results of the calls of a specification's operations."""

    operations: int = 0
    requests: int = 0
    valid: int = 0
    unfit: list[str] = field(default_factory=list)  # no value was found that fits the schemas
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def percent(self) -> float:
        return 100.0 * self.valid / max(1, self.requests)

    def reasons(self) -> Counter[str]:
        return Counter(reason[:90] for _, reason in self.failures)


def arguments_of(
    giver: Giver, operation: Operation, judge: Judge, full: bool
) -> dict[str, Any] | None:
    """Return arguments for a call: the required ones, and with ``full`` some of the others.

    The result is None if no values fit the schemas, some of which contradict themselves.
    """
    given: dict[str, Any] = {}
    for param in operation.params:
        if param.required or (full and giver.random.random() < 0.6):
            value = giver.give(param.schema)
            if param.place == "path" and isinstance(value, str):
                # The judge does not decode a slash, and "." is refused: it leads elsewhere.
                value = value.replace("/", "_").replace(".", "_") or "x"
            if not judge.fits(param.schema, value) or (
                param.style == "deepObject" and hollow(value)
            ):
                return None
            given[param.arg] = value
    body = operation.body
    if body is None:
        return given
    if body.fields is None:
        if body.required or full:
            value = b"\x00\x01bytes" if body.kind == "binary" else giver.give(body.schema)
            if body.kind == "json" and not judge.fits(body.schema, value):
                return None
            given[body.whole_argument or "body"] = value
        return given
    if not full and not body.required:
        return given
    whole = giver.give(body.schema)
    kept = {f.name: whole[f.name] for f in body.fields if f.name in whole and (full or f.required)}
    if not judge.fits(body.schema, kept):
        kept = {f.name: whole[f.name] for f in body.fields if f.name in whole}
        if not judge.fits(body.schema, kept):
            return None
    if body.kind != "json" and any(hollow(value) for value in kept.values()):
        return None
    return given | {f.arg: kept[f.name] for f in body.fields if f.name in kept}


def _content(file: Any) -> str:
    try:
        return file.read().decode()
    finally:
        file.close()


def hollow(value: Any) -> bool:
    """Return True if a value has an empty list or dict in it, which forms cannot express."""
    if isinstance(value, dict):
        return not value or any(hollow(item) for item in value.values())
    return isinstance(value, list) and (not value or any(hollow(item) for item in value))


class Judge:
    """Checks the requests of one operation, except for its servers and its security.

    openapi-core checks most of a request. Parts that it does not support are removed from its
    copy of the specification and checked here with jsonschema: names with brackets
    (``deepObject`` with lists, forms like Stripe's). Its copy is also changed to correct its
    assumptions: ``readOnly`` parameters may be sent, ``*/*`` was JSON, the bytes of a file are a
    string (3.1), and an untyped parameter that can only be ``true`` is no text.
    """

    def __init__(self, giver: Giver, operation: Operation, host: str) -> None:
        self.giver = giver
        self.host = host
        self.kind = operation.body.kind if operation.body is not None else None
        tree = giver.tree
        endpoint = operation.endpoint
        item = {k: v for k, v in operation.item.items() if k != "servers"}
        item["parameters"] = []
        left_out = ("servers", "security", "callbacks")
        raw = {k: v for k, v in operation.raw.items() if k not in left_out}
        self.deep: list[dict[str, Any]] = []
        raw["parameters"] = self._parameters(operation)
        self.form: dict[str, Any] | None = None
        self.multipart: dict[str, Any] | None = None
        if raw.get("requestBody"):
            raw["requestBody"] = self._body(raw["requestBody"])
            if raw["requestBody"] is None:
                del raw["requestBody"]
        item[endpoint.method.lower()] = raw
        head = ("paths", "servers", "security", "webhooks")
        small = {k: v for k, v in tree.items() if k not in head}
        small["paths"] = {re.split("[#?]", endpoint.path)[0]: item}
        small["servers"] = [{"url": host}]
        self.core = OpenAPI.from_dict(small, config=CONFIG)
        dialect = OAS30Validator if str(tree.get("openapi")).startswith("3.0") else OAS31Validator
        resource = DRAFT202012.create_resource(tree)
        registry: Any = Registry()
        root: dict[str, Any] = {
            "registry": registry,
            "_resolver": registry.resolver_with_root(resource),
        }
        self.validator = lambda schema: dialect(schema, **root)
        writer = OAS30WriteValidator if dialect is OAS30Validator else OAS31Validator
        checker = oas30_format_checker if dialect is OAS30Validator else oas31_format_checker
        self.strict = lambda schema: writer(schema, **root, format_checker=checker)

    def fits(self, schema: Any, value: Any) -> bool:
        """Return True if jsonschema accepts a value for a schema; a parameter may be read-only."""
        if not isinstance(value, (dict, list)) and isinstance(schema, dict):
            schema = self._writable(schema)
        try:
            return self.strict(schema).is_valid(value)
        except re.error:  # a pattern that only JavaScript reads
            return False

    def _parameters(self, operation: Operation) -> list[dict[str, Any]]:
        merged: dict[tuple[str, str], dict[str, Any]] = {}
        for holder in (operation.item, operation.raw):
            for raw in holder.get("parameters") or []:
                found = self.giver.resolve(raw)
                merged[found["in"], found["name"]] = found
        kept: list[dict[str, Any]] = []
        for found in merged.values():
            if found.get("style") == "deepObject" or self._is_nested(found):
                self.deep.append(found)
                continue
            if isinstance(found.get("schema"), dict):
                schema = self._writable(found["schema"])
                found = {**found, "schema": schema}
            kept.append(found)
        return kept

    def _writable(self, schema: Any) -> dict[str, Any]:
        """Return a parameter's schema without ``readOnly``, and without its default."""
        found = {
            k: v for k, v in self.giver.resolve(schema).items() if k not in ("readOnly", "default")
        }
        for word in ("oneOf", "anyOf", "allOf"):
            if word in found:
                found[word] = [self._writable(part) for part in found[word]]
        kinds = {type(value) for value in found.get("enum", ())}
        if kinds == {bool} and "type" not in found:
            found["type"] = "boolean"
        return found

    def _is_nested(self, found: dict[str, Any]) -> bool:
        """Return True for lists of objects in a query, whose form the specification leaves open."""
        schema = self.giver.flat(found.get("schema"))
        items = self.giver.flat(schema.get("items")) if found["in"] == "query" else {}
        return items.get("type") == "object"

    def _body(self, raw: Any) -> Any:
        found = dict(self.giver.resolve(raw))
        content = dict(found["content"])
        for media in list(content):  # openapi-core reads JSON by this name only
            if media in ("*/*", "application/*") or media.endswith("+json"):
                content.setdefault("application/json", content.pop(media))
        form = content.get("application/x-www-form-urlencoded")
        if form and len(content) == 1 and "deepObject" in json.dumps(form.get("encoding") or {}):
            self.form = form["schema"]
            return None
        if self.kind == "binary":  # any bytes will do; the judge would want text
            content = {media: {} for media in content}
        multipart = content.get("multipart/form-data")
        if multipart and self.kind == "multipart":
            self.multipart = multipart["schema"]
            return None
        return {**found, "content": content}

    def judge(self, seen: Seen) -> None:
        """Raise an error if the request does not conform."""
        pairs = parse_qsl(seen.query, keep_blank_values=True)
        names = tuple(found["name"] for found in self.deep)
        rest = [(k, v) for k, v in pairs if k.partition("[")[0] not in names]
        self.core.validate_request(Arrived(seen, self.host, rest))
        tree = nested([pair for pair in pairs if pair not in rest])
        for found in self.deep:
            value = tree.get(found["name"])
            if value is not None:
                text = isinstance(value, str) and value.startswith(("[", "{"))
                self._check(found["schema"], json.loads(value) if text else value)
            elif found.get("required"):
                raise ValueError(f"{found['name']} is missing")
        if self.form is not None:
            kind = seen.header("content-type")
            if seen.body and kind != "application/x-www-form-urlencoded":
                raise ValueError(f"a form as {kind}")
            body = parse_qsl(
                seen.body.decode(), keep_blank_values=True, strict_parsing=bool(seen.body)
            )
            self._check(self.form, nested(body))

        if self.multipart is not None and seen.body:
            self._check(self.multipart, self._parts(seen, self.multipart))

    def _parts(self, seen: Seen, schema: Any) -> dict[str, Any]:
        """Return the parts of a multipart body, parsed by werkzeug."""
        kind, options = parse_options_header(seen.header("content-type"))
        assert kind == "multipart/form-data"
        parser = MultiPartParser()
        boundary = options["boundary"].encode()
        form, files = parser.parse(io.BytesIO(seen.body), boundary, len(seen.body))
        properties = self.giver.flat(schema).get("properties") or {}
        result: dict[str, Any] = {}
        for name in dict.fromkeys([*form, *files]):
            values: list[Any] = [*form.getlist(name), *(_content(f) for f in files.getlist(name))]
            inner = self.giver.flat(properties.get(name, {}))
            is_list = inner.get("type") == "array" or any(
                self.giver.flat(c).get("type") == "array" for c in inner.get("oneOf", ())
            )
            values = [
                self._part(inner.get("items", inner) if is_list else inner, v) for v in values
            ]
            result[name] = values if is_list else values[0]
        return result

    def _part(self, schema: Any, text: str) -> Any:
        if text[:1] in "{[" and not self.validator(schema).is_valid(text):
            with contextlib.suppress(ValueError):
                return json.loads(text)
        return self._typed(schema, text)

    def _check(self, schema: Any, value: Any) -> None:
        typed = self._typed(schema, value)
        self.validator(schema).validate(typed)

    def _typed(self, schema: Any, value: Any) -> Any:
        """Convert text to the type of its schema; of several types, to the first that fits."""
        found = self.giver.flat(schema)
        for word in ("anyOf", "oneOf"):
            for choice in found.get(word) or ():
                typed = self._typed(choice, value)
                if self.validator(choice).is_valid(typed):
                    return typed
        if isinstance(value, dict):
            if found.get("type") == "array":
                numbers = sorted(value, key=int)
                assert [int(n) for n in numbers] == list(range(len(numbers)))
                return [self._typed(found.get("items", {}), value[n]) for n in numbers]
            inner = found.get("properties") or {}
            extra = found.get("additionalProperties")
            other = extra if isinstance(extra, dict) else {}
            return {k: self._typed(inner.get(k, other), v) for k, v in value.items()}
        kind = found.get("type")
        try:
            if kind == "integer":
                return int(value)
            if kind == "number":
                return float(value)
        except ValueError:
            return value
        return {"true": True, "false": False}.get(value, value) if kind == "boolean" else value


def nested(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Return pairs such as ``a[b][0]=1`` as nested mappings."""
    result: dict[str, Any] = {}
    for name, value in pairs:
        keys = [name.partition("[")[0], *re.findall(r"\[([^\]]*)\]", name)]
        place = result
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        assert keys[-1] not in place, f"{name} twice"
        place[keys[-1]] = value
    return result


def in_one(document: Document) -> dict[str, Any]:
    """Return a specification that includes everything it refers to in other documents."""
    places: dict[str, str] = {}
    parts: list[Any] = []

    def copied(node: Any) -> Any:
        if isinstance(node, list):
            return [copied(part) for part in node]
        if not isinstance(node, dict):
            return node
        ref = node.get("$ref")
        if not isinstance(ref, str) or ref.startswith("#"):
            return {key: copied(part) for key, part in node.items()}
        place = document.absolute(ref)
        if place not in places:
            places[place] = f"#/x-parts/{len(parts)}"
            parts.append(None)
            try:
                parts[int(places[place].rpartition("/")[2])] = copied(document.at(place))
            except DelfError:  # it may not be read: any value will do
                parts[int(places[place].rpartition("/")[2])] = {}
        return {"$ref": places[place]}

    return {**copied(document.at("#")), "x-parts": parts}


async def judge_spec(
    spec: str,
    *,
    rounds: int = 1,
    only: set[str] | None = None,
    most: int | None = None,
    seed: int = 0,
) -> Verdict:
    """Call the operations of a specification and collect the verdicts.

    Args:
        spec: The file.
        rounds: The number of further calls of each operation, with optional arguments.
        only: The names of the operations to call; all by default.
        most: The largest number of operations, chosen by the seed.
        seed: The seed of all random choices.
    """
    verdict = Verdict()
    async with raw_server(lambda seen: Reply(200, b"{}")) as server:
        tool = APITool(spec, name="api", base_url=server.url, allow=True, retries=0)
        actions = {a.name: a for a in await tool.actions()}
        api = load_api("api", tool.settings, None, True)
        if len(api.document.trees.documents) > 1:
            # The judge and the giver of values read one document only.
            api = load_api("api", tool.settings, in_one(api.document), True)
        tree = api.document.at("#")
        names = [n for n in api.entries if only is None or n in only]
        if most is not None and len(names) > most:
            names = sorted(Giver(tree, seed).random.sample(names, most))
        for name in names:
            verdict.operations += 1
            operation = read_operation(api.document, api.entries[name].endpoint)
            judge = Judge(Giver(tree, seed), operation, server.url)
            for number in range(rounds + 1):
                tries = (Giver(tree, (seed, name, number, attempt)) for attempt in range(TRIES))
                made = (arguments_of(giver, operation, judge, number > 0) for giver in tries)
                given = next((g for g in made if g is not None), None)
                if given is None:
                    verdict.unfit.append(name)
                    continue
                verdict.requests += 1
                try:
                    action = actions[name]
                    await action.call(**action.validate(given))
                except DelfError as error:
                    verdict.failures.append((name, f"refused: {error.message}"))
                    continue
                except Exception as error:
                    verdict.failures.append((name, f"crash: {type(error).__name__}: {error}"))
                    continue
                try:
                    judge.judge(server.last)
                except Exception as error:
                    cause = error.__cause__ or error.__context__ or error
                    detail = getattr(cause, "schema_errors", None)
                    text = "; ".join(str(e.message)[:120] for e in detail) if detail else ""
                    verdict.failures.append(
                        (
                            name,
                            f"{type(error).__name__}: {type(cause).__name__} {str(cause)[:200]} {text} <- {server.last.target[:200]} {server.last.body[:200]!r}",
                        )
                    )
                else:
                    verdict.valid += 1
        await tool.aclose()
    return verdict
