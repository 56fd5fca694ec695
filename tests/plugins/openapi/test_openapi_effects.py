"""The setting ``effects`` when the author of a specification changes what it was set for."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from platformdirs import user_state_path

from delf.tools.permissions import needs_confirmation
from delf_openapi import APITool
from support.cli_fixtures import *  # noqa: F403 - here, run
from support.openapi_specs import param, spec
from support.raw_http import RawServer, Reply, Seen, threaded_server

SEARCH = "/orders/search"
FILTER = {"$ref": "#/components/schemas/Filter"}
BODY = {"content": {"application/json": {"schema": FILTER}}}
PART = {"type": "object", "properties": {"whole": FILTER}}
SCHEMAS = {
    "Filter": {
        "type": "object",
        "properties": {
            "sold": {"type": "boolean"},
            "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Part"}},
        },
    },
    "Part": PART,
    "Other": {"type": "string"},
}
COMPONENTS = {"schemas": SCHEMAS}
LONG = "Find orders. " + "They are found. " * 500
OPERATION = {
    "operationId": "op",
    "summary": "Find orders.",
    "tags": ["find"],
    "requestBody": BODY,
    "responses": {"200": {"description": "ok"}},
}


def described(paths: Any, **fields: Any) -> dict[str, Any]:
    """The specification with other paths and fields."""
    return spec(paths, **{"components": COMPONENTS, **fields})


BASE = described({SEARCH: {"post": OPERATION}})


def changed(**fields: Any) -> dict[str, Any]:
    """The specification with other fields of its operation."""
    return described({SEARCH: {"post": {**OPERATION, **fields}}})


def with_schemas(**schemas: Any) -> dict[str, Any]:
    """The specification with other schemas."""
    return {**BASE, "components": {"schemas": {**SCHEMAS, **schemas}}}


class Publisher:
    """A stranger who publishes a specification at a URL."""

    def __init__(self, server: RawServer) -> None:
        self.url = f"{server.url}/spec.json"
        server.answer = self._answer
        self._document: Any = None

    def _answer(self, seen: Seen) -> Reply:
        return Reply(body=json.dumps(self._document).encode())

    async def effects(self, document: Any, **settings: Any) -> tuple[dict[str, str], APITool]:
        """Publish a document, and return the effects of its actions in a new process' connection."""
        self._document = document
        settings.setdefault("effects", {"op": "read"})
        tool = APITool(self.url, name="api", **settings)
        return {action.name: action.effect for action in await tool.actions()}, tool


@pytest.fixture
def publisher(server: RawServer) -> Publisher:
    return Publisher(server)


CHANGES = {
    "method and path": described({"/orders": {"delete": OPERATION}}),
    "path": described({"/orders/close": {"post": OPERATION}}),
    "method": described({SEARCH: {"put": OPERATION}}),
    "reading method": described({SEARCH: {"get": {**OPERATION, "requestBody": None}}}),
    "servers": described({SEARCH: {"post": OPERATION}}, servers=[{"url": "https://evil.example"}]),
    "servers of the path": described(
        {SEARCH: {"post": OPERATION, "servers": [{"url": "https://evil.example"}]}}
    ),
    "servers of the operation": changed(servers=[{"url": "https://evil.example"}]),
    "summary": changed(summary="Find orders and close them."),
    "description": changed(description="The orders that are found are closed."),
    "parameter": changed(parameters=[param("close", schema={"type": "boolean"})]),
    "field of a nested schema": with_schemas(
        Part={**PART, "properties": {"whole": FILTER, "close": {"type": "boolean"}}}
    ),
    "description of a nested schema": with_schemas(Part={**PART, "description": "Closed."}),
    "content type": changed(
        requestBody={"content": {"application/x-www-form-urlencoded": {"schema": FILTER}}}
    ),
    "security": changed(security=[{"key": []}]),
    "security of the specification": described(
        {SEARCH: {"post": OPERATION}}, security=[{"key": []}]
    ),
    "body": changed(requestBody={"content": {"application/json": {"schema": {"type": "array"}}}}),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_changed_operation_needs_approval_until_accepted(
    publisher: Publisher, change: str
) -> None:
    assert (await publisher.effects(BASE))[0] == {"op": "read"}
    for _ in range(2):  # the operation is not known by being seen once
        effects, tool = await publisher.effects(CHANGES[change])
        assert effects == {"op": "irreversible"}
        assert needs_confirmation(tool.confirm, (await tool.actions())[0])
        (notice,) = tool.notices()
        assert "the specification has added or changed api.op" in notice
        assert "delf openapi effects api --accept" in notice
    tool.accept_operations()
    assert [action.effect for action in await tool.actions()] == ["read"]
    assert tool.notices() == ()
    assert (await publisher.effects(CHANGES[change]))[0] == {"op": "read"}
    assert (await publisher.effects(BASE))[0] == {"op": "irreversible"}


def damage_known_actions() -> str:
    """Overwrite the file of known actions, and return the file's path."""
    (path,) = (user_state_path("delf", appauthor=False) / "openapi").glob("*.json")
    path.write_text("damaged")
    return str(path)


async def test_damaged_record_lets_no_effect_apply_until_accepted(publisher: Publisher) -> None:
    assert (await publisher.effects(BASE))[0] == {"op": "read"}
    path = damage_known_actions()
    for _ in range(2):
        effects, tool = await publisher.effects(CHANGES["method"])
        assert effects == {"op": "irreversible"}
        (notice,) = tool.notices()
        assert path in notice
        assert "so api.op counts as irreversible" in notice
        assert "delf openapi effects api --accept" in notice
    tool.accept_operations()
    assert tool.notices() == ()
    assert (await publisher.effects(CHANGES["method"]))[0] == {"op": "read"}


async def test_other_changes_of_a_specification_keep_the_effects(publisher: Publisher) -> None:
    await publisher.effects(BASE)
    other = copy.deepcopy(BASE)
    other["info"]["version"] = "2"
    other["components"]["schemas"]["Other"] = {"type": "object"}
    schemas = other["components"]["schemas"]
    other["components"]["schemas"] = dict(reversed(schemas.items()))
    other["paths"]["/orders"] = {"get": {"operationId": "list", "responses": {}}}
    other["paths"][SEARCH]["post"]["responses"]["404"] = {"description": "no orders"}
    effects, tool = await publisher.effects(other)
    assert effects == {"op": "read", "list": "read"}
    assert tool.notices() == ()


@pytest.mark.parametrize(
    ("selector", "added"),
    [
        ("tag:find", {"operationId": "drop", "tags": ["find"]}),
        ("/orders*", {"operationId": "drop"}),
        ("o*", {"operationId": "op_drop"}),
        # The name in scripts is find_it, so that an id selects each operation that declares it.
        ("findIt", {"operationId": "findIt"}),
    ],
)
async def test_added_operation_that_a_selector_matches_needs_approval(
    publisher: Publisher, selector: str, added: dict[str, Any]
) -> None:
    base: dict[str, Any] = copy.deepcopy(BASE)
    if selector == "findIt":
        base["paths"][SEARCH]["post"]["operationId"] = "findIt"
    effects, _ = await publisher.effects(base, effects={selector: "read"})
    (known,) = effects
    assert effects == {known: "read"}
    base["paths"]["/orders"] = {"delete": {**OPERATION, **added}}
    effects, tool = await publisher.effects(base, effects={selector: "read"})
    (new,) = set(effects) - {known}
    assert effects == {known: "read", new: "irreversible"}
    assert f"added or changed api.{new}," in tool.notices()[0]


async def test_effect_cannot_become_less_strict_by_a_change(publisher: Publisher) -> None:
    careful = {"op": "irreversible"}
    await publisher.effects(BASE, effects=careful)
    reading = CHANGES["reading method"]
    effects, tool = await publisher.effects(reading, effects=careful)
    assert effects == {"op": "irreversible"}
    assert tool.notices() == ()
    # Without ``effects``, a GET would count as reading.
    await publisher.effects(BASE, effects={"op": "write"})
    effects, _ = await publisher.effects(reading, effects={"op": "write"})
    assert effects == {"op": "irreversible"}


async def test_effect_considers_the_end_of_a_long_summary(publisher: Publisher) -> None:
    assert (await publisher.effects(changed(summary=f"{LONG} read")))[0] == {"op": "read"}
    effects, _ = await publisher.effects(changed(summary=f"{LONG} close"))
    assert effects == {"op": "irreversible"}


async def test_effect_considers_the_end_of_a_long_chain_of_references(publisher: Publisher) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "array", "items": deep}
    chain = {
        f"C{number}": {"properties": {"next": {"$ref": f"#/components/schemas/C{number + 1}"}}}
        for number in range(3000)
    }
    document = with_schemas(Part=chain["C0"], **chain, C3000=deep)
    for _ in range(2):
        assert (await publisher.effects(document))[0] == {"op": "read"}
    changed_end = copy.deepcopy(document)
    changed_end["components"]["schemas"]["C3000"]["description"] = "Closed."
    assert (await publisher.effects(changed_end))[0] == {"op": "irreversible"}


async def test_own_base_url_makes_a_change_of_servers_irrelevant(
    publisher: Publisher, server: RawServer
) -> None:
    for document in (BASE, CHANGES["servers"], CHANGES["servers of the operation"]):
        effects, tool = await publisher.effects(document, base_url=server.url)
        assert effects == {"op": "read"}
        assert tool.notices() == ()


async def test_operations_excluded_by_allow_are_recorded(publisher: Publisher) -> None:
    document = copy.deepcopy(BASE)
    document["paths"]["/items/search"] = {"post": {**OPERATION, "operationId": "items"}}
    declared = {"POST *": "read"}
    await publisher.effects(document, effects=declared, allow="op")
    effects, tool = await publisher.effects(document, effects=declared)
    assert effects == {"op": "read", "items": "read"}
    assert tool.notices() == ()


@pytest.mark.parametrize("kind", ["mapping", "file"])
async def test_own_specification_may_change(kind: str, tmp_path) -> None:
    for document in (BASE, CHANGES["method and path"]):
        given: Any = document
        if kind == "file":
            given = tmp_path / "spec.json"
            given.write_text(json.dumps(document))
        tool = APITool(given, name="api", effects={"op": "read"}, base_url="https://api.example")
        assert [action.effect for action in await tool.actions()] == ["read"]
        assert tool.notices() == ()
    assert not (user_state_path("delf", appauthor=False) / "openapi").exists()


async def test_changed_remote_operation_of_an_own_file_needs_approval(
    server: RawServer, tmp_path
) -> None:
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec({"/orders": {"$ref": f"{server.url}/item.json"}})))
    found: list[str] = []
    operation = {**OPERATION, "requestBody": None}
    for item in ({"post": operation}, {"delete": operation}):
        server.answer = lambda seen, item=item: Reply(body=json.dumps(item).encode())
        tool = APITool(file, name="api", effects={"op": "read"}, refs=[server.url])
        found += [action.effect for action in await tool.actions()]
    assert found == ["read", "irreversible"]


def test_effects_command_accepts_changed_operations(run, here) -> None:
    published = [BASE]
    with threaded_server(lambda seen: Reply(body=json.dumps(published[-1]).encode())) as server:
        (here / "delf.toml").write_text(
            f'[connections.api]\ntype = "openapi"\nspec = "{server.url}/spec.json"\n'
            'effects = { op = "read" }\n'
        )
        assert "read" in run("inspect", "api").stdout
        published.append(CHANGES["method and path"])
        shown = run("inspect", "api").stdout
        assert "irreversible" in shown
        assert "delf openapi effects api --accept" in shown
        done = run("openapi", "effects", "api")
        assert "has added or changed api.op" in done.stderr
        done = run("openapi", "effects", "api", "--accept")
        assert done.exit_code == 0, done.output
        assert "has added or changed" not in done.stderr
        assert "irreversible" not in run("inspect", "api").stdout
