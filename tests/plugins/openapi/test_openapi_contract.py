"""The contracts of connections and plugins."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from delf.testing import Call, ConnectionContract, PluginContract
from delf_openapi import APITool
from support.openapi_specs import PETS
from support.raw_http import Reply, Seen, threaded_server


def answer(seen: Seen) -> Reply:
    if seen.path.endswith("/photo"):
        return Reply(200, b"\x89PNG", {"Content-Type": "image/png"})
    if seen.path == "/pets/404":
        return Reply(404, b'{"detail": "no such pet", "your key": "key-5ecret"}')
    if seen.method == "DELETE":
        return Reply(204, b"", {})
    return Reply(200, json.dumps([{"id": 1, "name": "Rex"}]).encode())


class TestConnection(ConnectionContract):
    calls = (
        Call("list_pets", limit=5),
        Call("create_pet", name="Rex", kind="dog"),
        Call("get_photo", petId=1),
        Call("delete_pet", petId=1),
    )
    failing_calls = (Call("get_pet", petId=404),)
    untested = ("get_pet",)
    logs_in = False  # test_openapi_calls.py has what an API answers that refuses a key
    secrets = ("key-5ecret", "hdr-5ecret", "prm-5ecret")

    @pytest.fixture
    def connection(self) -> Iterator[APITool]:
        with threaded_server(answer) as server:
            yield APITool(
                PETS,
                base_url=server.url,
                api_key="key-5ecret",
                headers={"X-Mine": "hdr-5ecret"},
                params={"p": "prm-5ecret"},
            )


class TestPackage(PluginContract):
    name = "openapi"
    offers: Any = {"command": ["openapi"], "connection": ["openapi"]}
    vendors = ("httpx", "yaml")
