"""Tests that tools of other frameworks, recognised by their shape, work unchanged."""

import inspect
from datetime import date
from types import SimpleNamespace
from typing import Any

import pytest

from delf import Agent
from delf.errors import ToolDefinitionError, ToolRefusedError
from delf_engine.foreign_tools import as_connections

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "integer", "default": 1},
        "unit": {"enum": ["C", "F"]},
    },
    "required": ["city", "unit"],
}


def weather(city: str, unit: str, days: int = 1) -> str:
    """The weather."""
    return f"{city}: {days} days in {unit}"


async def weather_async(**given: Any) -> str:
    return weather(**given)


class LangChain:
    name, description, args_schema = "weather", "The weather.", WEATHER

    async def ainvoke(self, arguments: dict[str, Any]) -> str:
        return weather(**arguments)


class Smolagents:
    name, description, output_type = "weather", "The weather.", "string"
    inputs = {
        "city": {"type": "string", "description": "Where."},
        "unit": {"type": "any", "description": "Which."},
        "days": {"type": "integer", "description": "How many.", "nullable": True},
    }

    def __call__(self, **given: Any) -> str:
        return weather(**given)


def pydantic_ai(work: Any = weather, **more: Any) -> Any:
    async def call(arguments: dict[str, Any], _context: None) -> Any:
        result = work(**arguments)
        return await result if inspect.isawaitable(result) else result

    validator = SimpleNamespace(validate_python=dict)
    schema = SimpleNamespace(json_schema=WEATHER, validator=validator, call=call)
    facts = {"name": "weather", "description": "The weather.", "function_schema": schema, **more}
    return SimpleNamespace(**facts)


def llm() -> Any:
    facts = {"name": "weather", "description": "The weather.", "input_schema": WEATHER}
    return SimpleNamespace(implementation=weather, **facts)


class Cogency:
    name, description = "weather", "The weather."
    schema = {
        "city": {"type": "string", "required": True, "description": "Where."},
        "unit": {"type": "string"},
        "days": {"type": "integer", "required": False, "default": 1},
    }

    async def execute(self, **given: Any) -> Any:
        return SimpleNamespace(outcome="Found", content=weather(**given), error=False)

    def describe(self, args: dict[str, Any]) -> str:
        return f"weather({args})"


OPENAI = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER},
}

SHAPES = {
    "LangChain": LangChain(),
    "smolagents": Smolagents(),
    "pydantic-ai": pydantic_ai(),
    "an asynchronous one": pydantic_ai(weather_async),
    "a toolset": SimpleNamespace(tools={"weather": pydantic_ai()}),
    "llm": llm(),
    "cogency": Cogency(),
    "OpenAI's schema": (weather, OPENAI),
    "and the other way round": (OPENAI["function"], weather),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_tool_of_another_framework_is_called(shape, scripted_model, delf_host):
    (tool,) = as_connections([SHAPES[shape]])
    (action,) = await tool.actions()
    assert (action.name, action.effect) == ("weather", "irreversible")
    assert tool.confirm is True
    script = "print(await weather(city='Graz', unit='C', days=2))\nprint(await weather(city='Linz', unit='F'))"
    scripted_model.writes(script)
    options = {"llm": "scripted", "host": delf_host, "approval_mode": "approve_all"}
    async with Agent([SHAPES[shape]], **options) as agent:
        response = await agent.arun("x")
    assert response.text.split("\n")[:2] == ["Graz: 2 days in C", "Linz: 1 days in F"]


async def test_foreign_tool_signature_matches_its_schema():
    (tool,) = as_connections([(weather, OPENAI)])
    (action,) = await tool.actions()
    text = str(action.signature)
    assert "city: str" in text
    assert "days: int | None" in text
    assert "'C'" in text
    assert "Where." in str(action.describe(verbose=True))


async def test_cogency_parameter_without_a_type_is_checked_by_its_schema():
    class Untyped(Cogency):
        schema = {"city": {"pattern": "^[A-Z]"}}

    (tool,) = as_connections([Untyped()])
    (action,) = await tool.actions()
    action.validate({"city": "Graz"})
    with pytest.raises(ToolRefusedError, match="city"):
        action.validate({"city": "graz"})


LIMITS = {
    "count": {"type": "integer", "minimum": 1, "maximum": 9},
    "share": {"type": "number", "exclusiveMinimum": 0},
    "word": {"type": ["string", "null"], "minLength": 2},
    "list": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
}


@pytest.mark.parametrize(
    "wrong", [{"count": 0}, {"count": 10}, {"share": 0}, {"word": "a"}, {"list": [1, 2, 3]}]
)
async def test_schema_limits_are_enforced_for_foreign_tools(wrong):
    schema = {"name": "f", "parameters": {"properties": LIMITS, "required": []}}
    (tool,) = as_connections([(lambda **given: given, schema)])
    (action,) = await tool.actions()
    action.validate({"count": 9, "share": 0.5, "word": "ab", "list": [1, 2]})
    with pytest.raises(ToolRefusedError, match=next(iter(wrong))):
        action.validate(wrong)


WHOLE = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
        "step": {"type": "integer", "multipleOf": 5},
        "same": {"$ref": "#/properties/step"},
        "rate": {"enum": [0.5, 1.0]},
        "maybe": {"enum": ["a", None]},
        "who": {
            "type": "object",
            "properties": {"age": {"$ref": "#/$defs/Age"}},
            "required": ["age"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "people": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "loose": {"items": {"type": "integer"}},
        "some": {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "null"}]},
        "both": {"allOf": [{"type": "integer"}, {"minimum": 2}]},
        "bare": {"minimum": 2},
        "more": {"$ref": "#/properties/step", "maximum": 20},
        "free": {"type": "object", "additionalProperties": True},
        "any": True,
        "part": {"$ref": "#/properties/some/anyOf/0"},
    },
    "$defs": {"Age": {"type": "integer", "minimum": 0}},
}
FITS = {
    "code": "AT", "step": 10, "same": 5, "more": 5, "rate": 0.5, "maybe": None, "who": {"age": 3}, "bare": 2,
    "tags": ["a", "b"], "people": [{"name": "Ada"}], "some": None, "both": 2, "free": {"x": date(2026, 1, 2)}, "any": [1],
    "part": 3, "loose": [1],
}  # fmt: skip
FAULTS = [
    {"code": "abc"}, {"step": 7}, {"same": 7}, {"rate": 0.7}, {"maybe": "b"}, {"who": {"age": -1}},
    {"who": {}}, {"who": {"age": 1, "more": 2}}, {"tags": ["a", "a"]}, {"people": [{}]},
    {"some": 1}, {"both": 1}, {"bare": 1}, {"more": 25}, {"part": 1}, {"loose": ["a"]},
]  # fmt: skip


@pytest.mark.parametrize("wrong", FAULTS, ids=str)
@pytest.mark.parametrize("kind", ["OpenAI's schema", "LangChain", "llm", "toolset"])
async def test_schema_is_enforced_on_arguments(kind, wrong):
    """The schema is checked before a person is asked, for all keywords of JSON Schema."""

    def work(**given: Any) -> Any:
        return given

    facts: dict[str, Any] = {"name": "f", "description": "x"}
    item = {
        "OpenAI's schema": (work, {"name": "f", "parameters": WHOLE}),
        "LangChain": SimpleNamespace(args_schema=WHOLE, ainvoke=weather_async, **facts),
        "llm": SimpleNamespace(input_schema=WHOLE, implementation=work, **facts),
        "toolset": SimpleNamespace(
            tools=[SimpleNamespace(input_schema=WHOLE, implementation=work, **facts)]
        ),
    }[kind]
    (tool,) = as_connections([item])
    (action,) = await tool.actions()
    assert action.validate(FITS) == FITS
    with pytest.raises(ToolRefusedError, match=next(iter(wrong))):
        action.validate(wrong)


@pytest.mark.parametrize(
    ("part", "fits"),
    [
        ({"type": "array", "items": {"type": "any"}}, [1, "a"]),
        ({"type": "array", "items": [{"type": "number"}, {"type": "number"}]}, [1.5, 2]),
        ({"type": "object", "properties": {"x": {"type": "float"}}}, {"x": 1.5}),
        ({"type": "object", "properties": {"x": {"$ref": "#/$defs/Gone"}}}, {"x": 1}),
        ({"type": "object", "properties": {"x": {"$id": "a", "type": "string"}}}, {"x": "a"}),
        ({"type": "object", "properties": {"type": {"type": "string"}}}, {"type": "any"}),
        ({"type": "object", "properties": {"default": {"type": "float"}}}, {"default": 1.5}),
        ({"type": "object", "properties": {"properties": {"type": "any"}}}, {"properties": 1}),
    ],
    ids=["any", "tuple", "float", "dangling", "id", "named type", "named default", "named so"],
)
async def test_loose_schema_of_a_framework_works(part, fits):
    schema = {"name": "f", "parameters": {"properties": {"value": part}, "required": ["value"]}}
    (tool,) = as_connections([(lambda value: value, schema)])
    (action,) = await tool.actions()
    assert action.validate({"value": fits}) == {"value": fits}


def test_invalid_schema_is_reported_when_the_tool_is_given():
    schema = {"name": "f", "parameters": {"properties": {"x": {"pattern": "("}}}}
    with pytest.raises(ToolDefinitionError, match="'f': its schema cannot be used"):
        as_connections([(weather, schema)])


def test_foreign_names_become_python_identifiers():
    schema = {"name": "get-weather", "parameters": {"properties": {"from": {}, "x-y": {}}}}
    (tool,) = as_connections([(lambda **given: given, schema)])
    assert tool.name == "get_weather"
    assert tool.function(from_=1, x_y=2) == {"from": 1, "x-y": 2}


def test_tool_that_needs_its_framework_context_is_refused():
    with pytest.raises(ToolDefinitionError, match="takes a RunContext"):
        as_connections([pydantic_ai(takes_ctx=True)])


@pytest.mark.parametrize("item", [3, "text", ["a"], (1, 2), LangChain, SimpleNamespace(tools=[1])])
def test_non_tool_is_refused(item):
    with pytest.raises(ToolDefinitionError, match="is not a tool"):
        as_connections([item])
