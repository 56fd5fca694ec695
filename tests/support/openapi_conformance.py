"""Calls every operation of a specification, and lets openapi-core judge each request."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers, ImmutableMultiDict

from delf.errors import DelfError
from delf_openapi import APITool
from delf_openapi.loading import load_api
from delf_openapi.operations import Operation, read_operation
from support.openapi_values import Giver
from support.raw_http import Reply, Seen, raw_server

CONFIG = Config(spec_validator_cls=None)  # pyright: ignore[reportArgumentType]


class Arrived:
    """A request as openapi-core wants to see it."""

    def __init__(self, seen: Seen, host: str, base: str) -> None:
        query = ImmutableMultiDict(parse_qsl(seen.query, keep_blank_values=True))
        cookies = dict(
            pair.strip().split("=", 1) for pair in (seen.header("cookie") or "").split(";") if "=" in pair
        )
        self.parameters = RequestParameters(
            query=query, header=Headers(seen.headers), cookie=ImmutableMultiDict(cookies)
        )
        self.host_url = host
        self.path = seen.path
        self.path_pattern = None
        self.method = seen.method.lower()
        self.content_type = seen.header("content-type") or ""
        self.body = seen.body or None


@dataclass
class Verdict:
    """What became of a specification's operations."""

    operations: int = 0
    requests: int = 0
    valid: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def percent(self) -> float:
        return 100.0 * self.valid / max(1, self.requests)

    def reasons(self) -> Counter[str]:
        return Counter(reason[:90] for _, reason in self.failures)


def arguments_of(giver: Giver, operation: Operation, full: bool) -> dict[str, Any]:
    """Arguments for a call: the required ones, and with ``full`` some of the others."""
    given: dict[str, Any] = {}
    for param in operation.params:
        if param.required or (full and giver.random.random() < 0.6):
            given[param.arg] = giver.give(param.schema)
    body = operation.body
    if body is None:
        return given
    if body.fields is None:
        if body.required or full:
            given[body.whole or "body"] = (
                b"\x00\x01bytes" if body.kind == "binary" else giver.give(body.schema)
            )
        return given
    whole = giver.give(body.schema)
    for item in body.fields:
        if item.name in whole and (full or body.required):
            if item.required or full:
                given[item.arg] = whole[item.name]
        elif item.required and body.required:
            given[item.arg] = giver.give(item.schema)
    return given


def judge_for(tree: dict[str, Any], operation: Operation, host: str) -> Any:
    """A validator of one operation's requests. Servers and security are not its matter here."""
    spot = operation.spot
    item = {k: v for k, v in operation.item.items() if k not in ("servers",)}
    raw = {k: v for k, v in operation.raw.items() if k not in ("servers", "security", "callbacks")}
    item[spot.method.lower()] = raw
    small = {k: v for k, v in tree.items() if k not in ("paths", "servers", "security", "webhooks")}
    small["paths"] = {spot.path.partition("#")[0]: item}
    small["servers"] = [{"url": host}]
    return OpenAPI.from_dict(small, config=CONFIG)


async def judge_spec(
    spec: str, *, rounds: int = 1, only: set[str] | None = None, most: int | None = None, seed: int = 0
) -> Verdict:
    """Call the operations of a specification and collect the verdicts.

    Args:
        spec: The file.
        rounds: Further calls per operation, beside the one with required arguments only.
        only: Names of operations.
        most: At most so many operations, chosen by the seed.
        seed: What the arguments depend on.
    """
    logging.getLogger("delf_openapi").setLevel(logging.ERROR)
    verdict = Verdict()
    async with raw_server(lambda seen: Reply(200, b"{}")) as server:
        tool = APITool(spec, name="api", base_url=server.url, allow=True, retries=0)
        actions = {a.name: a for a in await tool.actions()}
        api = load_api("api", tool.settings, None, True)
        tree = api.document.at("#")
        names = [n for n in api.entries if only is None or n in only]
        if most is not None and len(names) > most:
            names = sorted(Giver(tree, seed).random.sample(names, most))
        for name in names:
            verdict.operations += 1
            operation = read_operation(api.document, api.entries[name].spot)
            judge = judge_for(tree, operation, server.url)
            for number in range(rounds + 1):
                giver = Giver(tree, (seed, name, number))
                verdict.requests += 1
                given: dict[str, Any] = {}
                try:
                    given = arguments_of(giver, operation, number > 0)
                    action = actions[name]
                    await action.call(**action.validate(given))
                except DelfError as error:
                    verdict.failures.append((name, f"refused: {error.message}"))
                    continue
                except Exception as error:  # noqa: BLE001
                    verdict.failures.append((name, f"crash: {type(error).__name__}: {error}"))
                    continue
                try:
                    judge.validate_request(Arrived(server.last, server.url, ""))
                except Exception as error:
                    cause = error.__cause__ or error.__context__ or error
                    detail = getattr(cause, "schema_errors", None)
                    text = "; ".join(str(e.message)[:120] for e in detail) if detail else ""
                    verdict.failures.append(
                        (name, f"{type(error).__name__}: {type(cause).__name__} {str(cause)[:200]} {text} <- {server.last.target[:200]} {server.last.body[:200]!r}")
                    )
                else:
                    verdict.valid += 1
        await tool.aclose()
    return verdict
