"""Typed answers: a script calls ``answer(…)``, and the response has the object."""

import dataclasses
import datetime as dt
import json
from typing import Literal, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field, computed_field, field_serializer, field_validator

from delf import Chat, tool
from delf.errors import ToolDefinitionError
from delf.events import TaskFinished
from delf.messages import ModelReply, ToolCall
from delf.testing import script
from delf_engine.outputs import Output


class Line(BaseModel):
    product: str
    pieces: int = Field(ge=1)


class Invoice(BaseModel):
    number: str
    total: float
    due: dt.date
    lines: list[Line] = []


@dataclasses.dataclass
class City:
    name: str
    people: int = 0


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Guest(BaseModel):
    """A model whose fields have other names in JSON."""

    name: str = Field(alias="Name")
    age: int = Field(0, validation_alias="Age")


class Area(BaseModel, extra="forbid"):
    """A model with a computed field, and no further ones."""

    side: int

    @computed_field
    @property
    def size(self) -> int:
        return self.side**2


class Stay(BaseModel, strict=True):
    """A strict model with a serializer and a validator that changes its value."""

    first: dt.date
    nights: int

    @field_serializer("first")
    def _write(self, value: dt.date) -> str:
        return value.strftime("%d.%m.%Y")

    @field_validator("nights")
    @classmethod
    def _with_last(cls, value: int) -> int:
        return value + 1


SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "due": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}
DATE = "__import__('datetime').date(2026, 1, 2)"
DATED = {"id": 3, "due": "2026-01-02"}
INVOICE = {"number": "A-1", "total": 20, "due": "2026-12-24"}


@pytest.mark.parametrize(
    "call",
    [
        f"answer({INVOICE!r})",
        f"await answer({INVOICE!r})",
        f"await answer(value={INVOICE!r})",
        f"await answer(**{INVOICE!r})",
        "import datetime\nawait answer(number='A-1', total=20, due=datetime.date(2026, 12, 24))",
        f"import json\nprint(json.dumps({INVOICE!r}))",
    ],
)
def test_output_type_accepts_a_pydantic_model(make_agent, scripted_model, call):
    if "await" not in call and "print" not in call:
        call = f"await {call}"
    scripted_model.writes(call)
    response = make_agent().run("Which invoice?", output=Invoice)
    assert response.value == Invoice(number="A-1", total=20.0, due=dt.date(2026, 12, 24))
    assert response.used_tools is False
    message = scripted_model.prompts[0]
    assert "answer(value)" in message
    assert '"minimum":1' in message


@pytest.mark.parametrize(
    ("output", "given", "value"),
    [
        (City, "{'name': 'Rome'}", City("Rome")),
        (Row, "{'id': 3}", {"id": 3}),
        (list[Line], "[{'product': 'lamp', 'pieces': 2}]", [Line(product="lamp", pieces=2)]),
        (int, "42", 42),
        (list[Guest], "[{'Name': 'Ada', 'Age': 36}]", [Guest(Name="Ada", Age=36)]),
        (Area, "{'side': 3}", Area(side=3)),
        (Stay, f"{{'first': {DATE}, 'nights': 2}}", Stay(first=dt.date(2026, 1, 2), nights=2)),
        (SCHEMA, "{'id': 3}", {"id": 3}),
        (SCHEMA, f"{{'id': 3, 'due': {DATE}}}", DATED),
    ],
    ids=[
        "dataclass",
        "TypedDict",
        "list",
        "int",
        "aliases",
        "computed field",
        "strict type",
        "schema",
        "a date for a schema",
    ],
)
def test_output_type_accepts_every_kind(make_agent, scripted_model, output, given, value):
    scripted_model.writes(f"await answer({given})", "await answer({'id': 0})")
    response = make_agent(retry_count=0).run("x", output=output)
    assert response.value == value


def test_invalid_answer_is_returned_to_the_model_with_the_reason(make_agent, scripted_model):
    wrong = {**INVOICE, "lines": [{"product": "lamp", "pieces": 0}]}
    scripted_model.writes(f"await answer({wrong!r})", f"await answer({INVOICE!r})")
    response = make_agent().run("x", output=Invoice)
    assert response.value.number == "A-1"
    assert "lines.0.pieces: Input should be greater than or equal to 1" in scripted_model.prompts[1]


@pytest.mark.parametrize(
    ("output", "wrong", "right"),
    [
        ({"type": "string"}, b"\xff", "x"),
        ({"type": "object"}, {"a": b"\xff"}, {"a": "x"}),
        (bytes, b"\xff", b"x"),
        (list[bytes], [b"\xff"], [b"x"]),
    ],
)
def test_answer_that_cannot_be_json_is_returned_to_the_model(
    make_agent, scripted_model, output, wrong, right
):
    scripted_model.writes(f"await answer({wrong!r})", f"await answer({right!r})")
    assert make_agent().run("x", output=output).value == right
    assert "the answer cannot be JSON" in scripted_model.prompts[1]


def test_answer_that_is_nested_too_deeply_is_returned_with_a_remedy(make_agent, scripted_model):
    deep = "x = []\nfor _ in range(300):\n    x = [x]\n"
    scripted_model.writes(f"{deep}await answer(x)", "await answer([1])")
    assert make_agent().run("x", output=list).value == [1]
    assert "give plain data, in less than 250 levels" in scripted_model.prompts[1]


def test_prompt_has_the_values_of_a_schema_unchanged():
    record = {"title": "a", "$schema": "b"}
    schema = {"enum": [record], "properties": {"title": {"default": record}}}
    text = Output({"title": "Answer", **schema}).prompt_text()
    assert json.loads(text.splitlines()[-1]) == schema


def test_schema_error_names_the_invalid_place(make_agent, scripted_model):
    scripted_model.writes("await answer({'id': 'three'})", "await answer({'id': 3})")
    assert make_agent().run("x", output=SCHEMA).value == {"id": 3}
    assert "id: " in scripted_model.prompts[1]


def test_script_without_the_typed_answer_is_retried(make_agent, scripted_model):
    scripted_model.writes("print('20 euros')", f"await answer({INVOICE!r})")
    assert make_agent().run("x", output=Invoice).value.total == 20
    assert "call answer(value)" in scripted_model.prompts[1]


@pytest.mark.parametrize(
    ("output", "printed", "value"),
    [
        (str, "Ada is 36.", "Ada is 36."),
        (str, "36", "36"),
        (Literal["yes", "no"], "no", "no"),
        (dt.date, "2026-01-02", dt.date(2026, 1, 2)),
        ({"type": "string"}, "yes", "yes"),
        (int | str, "36", 36),
    ],
)
def test_printed_text_is_the_answer_if_the_type_takes_text(
    make_agent, scripted_model, output, printed, value
):
    scripted_model.writes(f"print({printed!r})")
    assert make_agent().run("x", output=output).value == value


def test_task_without_the_typed_answer_fails(make_agent, scripted_model):
    scripted_model.writes("print('20 euros')", "print('twenty')")
    response = make_agent().run("x", output=Invoice)
    assert (response.status, response.value) == (False, None)
    assert "call answer(value)" in response.error


def test_prose_is_refused_for_a_typed_answer(make_agent, scripted_model):
    scripted_model.says("It is A-1.", "It is A-1.")
    response = make_agent(chat=Chat()).run("x", output=Invoice)
    assert not response.status
    assert "It is A-1." in response.error


def test_last_answer_is_the_value_and_prints_are_the_text(make_agent, scripted_model):
    scripted_model.writes("await answer(1)\nawait answer(2)\nprint('It is two.')")
    response = make_agent().run("x", output=int)
    assert (response.value, response.text) == (2, "It is two.")


def test_typed_answer_without_prints_is_shown_as_text(make_agent, scripted_model):
    scripted_model.writes("await answer({'id': 3})\nx = None")
    response = make_agent().run("x", output=Row)
    assert response.text == '{\n  "id": 3\n}'
    assert response.to_dict()["value"] == {"id": 3}
    assert response.events[-1].value == {"id": 3}
    assert isinstance(response.events[-1], TaskFinished)


def test_agent_output_type_applies_to_every_task(make_agent, scripted_model):
    scripted_model.writes(f"await answer({INVOICE!r})", "await answer(4)")
    agent = make_agent(output=Invoice)
    assert agent.run("x").value.number == "A-1"
    assert agent.run("x", output=int).value == 4


def test_output_type_works_in_the_background_and_streamed(make_agent, scripted_model):
    scripted_model.writes("await answer(1)", "await answer(2)")
    agent = make_agent()
    assert agent.wait(agent.submit("x", output=int), 20).value == 1

    async def streamed():
        return [event async for event in agent.stream("x", output=int)]

    agent.stop()
    import asyncio

    agent = make_agent()
    events = asyncio.run(streamed())
    assert events[-1].value == 2


def test_output_type_with_the_stream_strategy_is_a_call(make_agent, scripted_model):
    call = ToolCall(id="1", name="answer", arguments='{"value": {"id": 3}}')
    scripted_model.says(ModelReply(text="", model="scripted", calls=(call,), cost_usd=0.0))
    from delf_strategy_stream.strategy import StreamStrategy

    agent = make_agent(strategy=StreamStrategy(notation="tools"))
    assert agent.run("x", output=Row).value == {"id": 3}
    assert len(scripted_model.requests) == 1


def test_tool_with_the_name_answer_is_refused(make_agent, scripted_model):
    @tool
    def answer() -> None:
        """Answer."""

    with pytest.raises(ToolDefinitionError, match="'answer'"):
        make_agent(answer).start()


def test_answer_function_is_absent_without_an_output_type(make_agent, scripted_model):
    scripted_model.says(script("await answer(1)"), script("print('ok')"))
    response = make_agent().run("x")
    assert (response.text, response.value) == ("ok", None)
    assert "NameError" in scripted_model.prompts[1]
