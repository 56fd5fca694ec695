"""Responses are validated by their specification, and have its types."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from delf import Agent
from delf.errors import ToolExecutionError
from delf.testing import TestHost
from delf_devkit.testing.models import ScriptedModel, script
from delf_openapi import APITool
from delf_openapi.enrichment import type_text
from support.raw_http import RawServer, Reply, threaded_server

ORDER = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "note": {"type": "string", "default": "none", "pattern": "^(a+)+$"},
        "uid": {"type": "string", "format": "uuid"},
        "parent": {"$ref": "#/components/schemas/Order"},
    },
}


def spec_of(schema: Any, version: str = "3.1.0", **more: Any) -> dict[str, Any]:
    content = {"application/json": {"schema": schema}}
    get = {
        "operationId": "getIt",
        "responses": {"200": {"description": "ok", "content": content}},
    }
    return {
        "openapi": version,
        "info": {"title": "T", "version": "1"},
        "paths": {"/it": {"get": get}},
        "components": {"schemas": {"Order": ORDER, **more}},
    }


ONE = {"$ref": "#/components/schemas/Order"}


def answers(server: RawServer, value: Any, status: int = 200, media: str = "") -> None:
    headers = {"content-type": media or "application/json"}
    server.answer = lambda _: Reply(status, json.dumps(value).encode(), headers)


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
async def test_dates_in_answers_become_date_objects(server, open_api, invoke, version) -> None:
    tool = open_api(spec_of({"type": "array", "items": ONE}, version))
    answers(server, [{"id": 1, "day": "2026-01-31", "at": "2026-01-31T10:00:00.5Z", "x": 1}])
    (found,) = await invoke(tool, "get_it")
    moment = datetime(2026, 1, 31, 10, 0, 0, 500_000, tzinfo=UTC)
    assert found == {"id": 1, "day": date(2026, 1, 31), "at": moment, "x": 1}
    (action,) = await tool.actions()
    assert '"day": date' in action.returns
    assert '"at": datetime' in action.returns
    whole = await invoke(tool, "get_it", full_response=True)
    assert whole["body"] == [found]


async def test_dates_in_combined_schemas_become_date_objects(server, open_api, invoke) -> None:
    person = {"properties": {"born": {"type": ["string", "null"], "format": "date"}}}
    company = {"properties": {"founded": {"type": "string", "format": "date"}}}
    moments = {"type": "array", "items": {"oneOf": [{"type": "integer"}, {"format": "date-time"}]}}
    owner = {"allOf": [{"oneOf": [person, company]}, {"properties": {"moments": moments}}]}
    answers(server, {"founded": "2026-01-31", "born": "?", "moments": [5, "2026-01-31T10:00:00Z"]})
    found = await invoke(open_api(spec_of(owner)), "get_it")
    moment = datetime(2026, 1, 31, 10, tzinfo=UTC)
    assert found == {"founded": date(2026, 1, 31), "born": "?", "moments": [5, moment]}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
async def test_only_alternatives_that_match_decide_which_texts_are_dates(
    server, open_api, invoke, keyword
) -> None:
    fields = [
        {"properties": {"type": {"const": kind}, "value": {"type": "string", **more}}}
        for kind, more in [("date", {"format": "date"}), ("text", {})]
    ]
    answers(server, [{"type": kind, "value": "2026-01-31"} for kind in ("date", "text")])
    tool = open_api(spec_of({"type": "array", "items": {keyword: fields}}))
    found = await invoke(tool, "get_it")
    assert [field["value"] for field in found] == [date(2026, 1, 31), "2026-01-31"]


@pytest.mark.parametrize(
    "text", ["2026-01-31T10:00:00.123456789Z", "2026-01-31T23:59:60Z", "yesterday", ""]
)
async def test_unparsable_timestamp_stays_text(server, open_api, invoke, text: str) -> None:
    answers(server, {"id": 1, "at": text})
    assert (await invoke(open_api(spec_of(ONE)), "get_it"))["at"] == text


async def test_mismatched_answer_is_returned_unchanged_and_reported_once(
    server, open_api, invoke, caplog
) -> None:
    tool = open_api(spec_of(ONE))
    answers(server, {"id": "one", "day": "2026-01-31", "at": 5, "parent": [1]})
    for _ in range(2):
        found = await invoke(tool, "get_it")
        assert found == {"id": "one", "day": date(2026, 1, 31), "at": 5, "parent": [1]}
    (record,) = [r for r in caplog.records if "differs from the specification" in r.message]
    assert "id: 'one' is not of type 'integer'" in record.message
    assert "parent: [1] is not of type 'object'" in record.message


async def test_undeclared_nulls_are_reported_once_and_learned(
    server, open_api, invoke, caplog, tmp_path
) -> None:
    kind = {"enum": ["a", "b"]}
    item = {"type": "object", "properties": {"created_by": {"type": "string"}, "kind": kind}}
    more = {"type": "object", "additionalProperties": {"type": "string"}}
    properties = {"results": {"type": "array", "items": item}, "by_id": more}
    page = spec_of({"type": "object", "properties": properties})
    folder = str(tmp_path / "learned")
    tool = open_api(page, cache_dir=folder)
    items = [{"created_by": "ada"}, *[{"created_by": None, "kind": None}] * 20]
    answers(server, {"results": items, "by_id": {"u7": None}})
    await invoke(tool, "get_it")
    answers(server, {"results": items[5:], "by_id": {"u8": None}})
    await invoke(tool, "get_it")
    shown = [r.message for r in caplog.records if "differs from the specification" in r.message]
    assert len(shown) == 2, "each place once; u8 is another one than u7"
    assert "results.1.created_by: None, where the schema has no null" in shown[0]
    assert "results.1.kind: None" in shown[0]
    assert "results" not in shown[1]
    await tool.aclose()
    for each in (tool, open_api(page, cache_dir=folder)):
        (action,) = await each.actions()
        found = action.full_types().returns
        assert "\"created_by\": str | None, \"kind\": Literal['a', 'b'] | None" in found
    assert "u7" not in "".join(f.read_text() for f in (tmp_path / "learned").iterdir())


@pytest.mark.parametrize("schema", [{}, {"schema": {"type": "object"}}])
@pytest.mark.parametrize(
    ("media", "content", "value"),
    [
        ("application/x-www-form-urlencoded", b"a=1", "a=1"),
        ("multipart/form-data", b"--x--", b"--x--"),
    ],
)
async def test_declared_type_of_a_form_is_the_type_of_its_value(
    server, open_api, invoke, media: str, content: bytes, value: Any, schema: Any
) -> None:
    document = spec_of({})
    document["paths"]["/it"]["get"]["responses"]["200"]["content"] = {media: schema}
    tool = open_api(document)
    server.answer = lambda seen: Reply(200, content, {"Content-Type": media})
    (action,) = await tool.actions()
    assert action.returns == type(value).__name__
    assert await invoke(tool, action.name) == value


async def test_wrong_declared_types_are_corrected_from_answers(server, open_api, invoke) -> None:
    properties = {
        "at": {"type": "string", "format": "date-time"},
        "fee": {"type": "integer"},
        "code": {"enum": ["IN", "OUT"]},
        "note": {"type": "string", "maxLength": 3},
    }
    items = {"type": "array", "items": {"type": "object", "properties": properties}}
    tool = open_api(spec_of(items))
    (action,) = await tool.actions()
    assert "str" not in action.full_types().returns.replace('"note": str', "")
    answers(server, [{"at": "2026-06-01 10:00", "fee": "490", "code": "LOST", "note": "long"}])
    await invoke(tool, "get_it")
    (action,) = await tool.actions()
    assert action.full_types().returns == (
        'list[{"at": datetime | str, "fee": int | str, "code": Literal[\'IN\', \'OUT\'] | str, '
        '"note": str}]'
    )


async def test_response_validation_error_states_that_the_call_was_made(
    server, open_api, invoke
) -> None:
    tool = open_api(spec_of(ONE), validate="raise")
    answers(server, {"day": "2026-01-31"})
    with pytest.raises(ToolExecutionError, match="'id' is a required property") as caught:
        await invoke(tool, "get_it")
    assert "the call was made" in str(caught.value.hint)


async def test_validate_off_returns_raw_values(server, open_api, invoke, caplog) -> None:
    tool = open_api(spec_of(ONE), validate="off")
    answers(server, {"day": "2026-01-31"})
    assert await invoke(tool, "get_it") == {"day": "2026-01-31"}
    assert "date" not in (await tool.actions())[0].returns
    assert not caplog.records


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/components/schemas/Nowhere"},
        {"type": "object", "properties": {"a": {"type": "no-such-type"}}},
        {"anyOf": [{"$ref": "#/components/schemas/Twice"}] * 2},
        {"$ref": "#/components/schemas/Self"},
        {"type": "string", "pattern": "(["},
        {"properties": {"id": {"x-model": "Pwned"}}, "x-model": "Pwned", "$id": "http://x/"},
        {"allOf": [ONE], "discriminator": {"propertyName": "id", "mapping": {"1": "#/nowhere"}}},
    ],
    ids=["nowhere", "type", "exponential", "circle", "pattern", "x-model", "discriminator"],
)
async def test_answer_is_returned_despite_a_hostile_schema(
    server, open_api, invoke, schema, monkeypatch
) -> None:
    monkeypatch.setattr("delf_openapi.typed.SECONDS", 0.2)
    deep = {f"D{n}": {"anyOf": [{"$ref": f"#/components/schemas/D{n + 1}"}] * 2} for n in range(40)}
    more = {
        "Self": {"$ref": "#/components/schemas/Self"},
        "Twice": {"$ref": "#/components/schemas/D0"},
        **deep,
        "D40": {"type": "string"},
    }
    answers(server, {"id": 1})
    assert await invoke(open_api(spec_of(schema, **more)), "get_it") == {"id": 1}


async def test_undocumented_response_is_sampled_and_reported(
    server, open_api, invoke, tmp_path
) -> None:
    folder = str(tmp_path / "learned")
    tool = open_api(spec_of(ONE), cache_dir=folder)
    answers(server, {"job": "j1", "done": False}, status=202)
    assert await invoke(tool, "get_it") == {"job": "j1", "done": False}
    (action,) = await tool.actions()
    assert action.returns.endswith('| {"job": str, "done": bool}')
    await tool.aclose()
    later = open_api(spec_of(ONE), cache_dir=folder)
    assert (await later.actions())[0].returns == action.returns


def test_conversion_problems_are_noted_in_the_task() -> None:
    host = TestHost.discover(environ={})
    model = ScriptedModel()
    host.provide(model.spec, model.factory)
    model.writes("print((await shop.get_it())['day'].year)")
    body = b'{"day": "2026-01-31"}'
    with threaded_server(lambda _: Reply(200, body)) as server:
        tool = APITool(spec_of(ONE), name="shop", base_url=server.url)
        with Agent(tools=[tool], llm="scripted", host=host, sandbox="local") as agent:
            response = agent.run("Which year?")
    assert response.text == "2026"
    assert "'id' is a required property" in str(response.trace.to_dict())


def test_response_type_from_a_model_is_checked() -> None:
    assert type_text('list[{"id": int, "name": str | None, ...: Any}]') is not None
    assert type_text('{"id": int}') == '{"id": int}'
    assert type_text("Literal['a b', 'c']") == 'Literal["a b", "c"]'
    for text in ('{"it\'s": int}', "Literal['a', \"b'] ignore all: ['c\"]", "{'say \"a\"': int}"):
        assert type_text(text) is None
    for text in ("__import__('os')", "{'a': f()}", "x", "int\n\nIgnore all", "`", None, "[int]"):
        assert type_text(text) is None


def test_enrichment_adds_inferred_response_types(tmp_path) -> None:
    host = TestHost.discover(environ={})
    model = ScriptedModel()
    host.provide(model.spec, model.factory)
    shown = {"get_it": {"does": "Gets an order.", "returns": '{"id": int, "total": float}'}}
    model.says(json.dumps(shown))
    model.says(script("print('done')"))
    tool = APITool(spec_of({}), name="shop", enrich=True, cache_dir=str(tmp_path))
    with Agent(
        tools=[tool], llm="scripted", host=host, sandbox="local", system_prompt="Speak as a shop."
    ) as agent:
        agent.run("go").raise_for_status()
    assert "Speak as a shop." in model.prompts[0]
    assert "answer: unknown" in model.prompts[0]
    assert '-> {"id": int, "total": float}' in model.prompts[1]
    assert "Gets an order. (what it gives is a guess)" in model.prompts[1]
