import datetime as dt
import enum
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired

import pydantic
import pytest
from typing_extensions import TypedDict

from delf.errors import ToolDefinitionError, ToolRefusedError
from delf.tools.signature import ArgumentValidator, check_name, read_signature, type_text


class Status(enum.Enum):
    OPEN = "open"
    CLOSED = "closed"


class Row(TypedDict):
    id: int
    note: NotRequired[str]


class Plain(typing.TypedDict, total=False):
    id: int


@dataclass
class Ticket:
    id: int
    row: Row


@dataclass
class Node:
    value: int
    children: "list[Node]"


class Deepest(TypedDict):
    down: int


class Deeper(TypedDict):
    down: Deepest


class Middle(TypedDict):
    down: Deeper


class Deep(TypedDict):
    down: Middle


@dataclass
class Defaults:
    a: int
    b: list[int] = field(default_factory=list)
    c: str = field(init=False, default="")


def wide(count, inner):
    return TypedDict("Wide", {f"k{number}": inner for number in range(count)})


class Point(NamedTuple):
    x: int
    y: str


class Model(pydantic.BaseModel):
    x: int
    when: dt.date | None = None


Key = NewType("Key", str)


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "int"),
        (None, "None"),
        (type(None), "None"),
        (Any, "Any"),
        (dict, "dict"),
        (list[dict], "list[dict]"),
        (list[dict[str, Any]], "list[dict[str, Any]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Sequence[str], "list[str]"),
        (Mapping[str, int], "dict[str, int]"),
        (int | None, "int | None"),
        (typing.Optional[str], "str | None"),  # noqa: UP045
        (typing.Union[int, str], "int | str"),  # noqa: UP007
        (Literal["open", 3], "Literal['open', 3]"),
        (Literal[tuple(range(100))], f"Literal[{', '.join(map(str, range(100)))}]"),
        (Status, "Literal['open', 'closed']"),
        (Annotated[int, pydantic.Field(gt=0)], "int"),
        (Key, "str"),
        (dt.datetime, "datetime"),
        (Decimal, "Decimal"),
        (Callable[[int], str], "Callable"),
        (Row, '{"id": int, ?"note": str}'),
        (Plain, '{?"id": int}'),
        (list[Ticket], 'list[{"id": int, "row": {"id": int, ?"note": str}}]'),
        (Model, '{"x": int, "when": date | None}'),
        (Point, '{"x": int, "y": str}'),
        ("Unresolved", "Unresolved"),
    ],
    ids=str,
)
def test_type_text_writes_stub_notation(hint, text):
    assert type_text(hint) == text


def test_nested_record_types_are_cut_at_the_length_limit():
    assert type_text(Deep) == '{"down": {"down": {"down": {"down": int}}}}'
    assert len(type_text(wide(40, wide(40, wide(40, int))))) < 6_000
    assert type_text(wide(2, wide(40, wide(40, int)))).count('"k0"') == 3


def test_recursive_record_type_is_written_once():
    assert type_text(Node) == '{"value": int, "children": list[dict]}'


def test_parameter_with_default_is_optional_in_stub():
    assert type_text(Defaults, as_input=True) == '{"a": int, ?"b": list[int]}'
    assert type_text(Defaults) == '{"a": int, "b": list[int], "c": str}'
    assert type_text(Model, as_input=True) == '{"x": int, ?"when": date | None}'


def test_signature_is_read_with_its_docstring():
    async def find(
        status: Literal["open", "closed"], limit: int = 50, *, since: dt.date | None = None
    ) -> list[Ticket]:
        """Tickets in a state,
        newest first.

        More that the model does not read.

        Args:
            status: Which state,
                the open ones or the closed.
            limit (int): How many.
            nothing: Not a parameter.

        Returns:
            since: not a description.
        """

    read = read_signature(find)
    assert [str(p) for p in read.parameters] == [
        "status: Literal['open', 'closed']",
        "limit: int = 50",
        "since: date | None = None",
    ]
    assert [p.required for p in read.parameters] == [True, False, False]
    assert [p.doc for p in read.parameters] == [
        "Which state, the open ones or the closed.",
        "How many.",
        "",
    ]
    assert read.summary == "Tickets in a state, newest first."
    assert read.returns.startswith("list[{")
    assert read.defaults == {"limit": 50, "since": None}


def test_signature_works_without_hints_and_docstring():
    read = read_signature(lambda a, b=1: None)
    assert [str(p) for p in read.parameters] == ["a: Any", "b: Any = 1"]
    assert (read.returns, read.summary) == ("Any", "")


def test_self_parameter_is_skipped():
    class Desk:
        def find(self, x: int) -> int: ...

    assert [p.name for p in read_signature(Desk.find, skip_first=True).parameters] == ["x"]


@pytest.mark.parametrize(
    ("default", "text"),
    [(None, "None"), ("a", "'a'"), (Status.OPEN, "'open'"), ("x" * 50, "..."), (object(), "...")],
    ids=["none", "text", "enum", "long", "object"],
)
def test_default_values_are_written_in_stub_notation(default, text):
    def function(a=default): ...

    assert read_signature(function).parameters[0].default_text == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(*args): ...", r"f takes \*args"),
        ("def f(**options): ...", r"f takes \*\*options"),
        ("def f(a, /): ...", r"f has the positional-only parameter 'a'"),
        ("def f(a: Nowhere): ...", "cannot read the signature of f"),
        ("def f(a: 'Nowhere'): ...", "cannot read the signature of f"),
    ],
)
def test_function_with_uncallable_parameters_is_refused(source, message):
    names: dict[str, Any] = {}
    exec(f"from __future__ import annotations\n{source}", names)
    with pytest.raises(ToolDefinitionError, match=message) as caught:
        read_signature(names["f"])
    assert caught.value.hint


# Arguments


def validator(function):
    return ArgumentValidator("desk.find", read_signature(function))


def find(
    status: Literal["open", "closed"],
    limit: Annotated[int, pydantic.Field(ge=1)] = 50,
    since: dt.date | None = None,
    row: Row | None = None,
) -> list[Ticket]: ...


def test_arguments_are_converted_and_missing_defaults_omitted():
    check = validator(find)
    assert check({"status": "open"}) == {"status": "open"}
    assert check({"status": "open", "limit": "3", "since": "2024-01-02"}) == {
        "status": "open",
        "limit": 3,
        "since": dt.date(2024, 1, 2),
    }
    assert check({"status": "open", "row": {"id": "1"}})["row"] == {"id": 1}


def test_dataclass_model_enum_and_decimal_arguments_are_built():
    def act(ticket: Ticket, model: Model, status: Status, amount: Decimal) -> None: ...

    checked = validator(act)(
        {
            "ticket": {"id": 1, "row": {"id": 2}},
            "model": {"x": 1},
            "status": "open",
            "amount": "1.10",
        }
    )
    assert checked["ticket"] == Ticket(1, {"id": 2})
    assert checked["model"] == Model(x=1)
    assert checked["status"] is Status.OPEN
    assert checked["amount"] == Decimal("1.10")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "missing argument 'status'"),
        ({"status": "x"}, "argument 'status': Input should be 'open' or 'closed'"),
        ({"status": "open", "limt": 1}, "unknown argument 'limt'"),
        ({"status": "open", "p1": 1}, "unknown argument 'p1'"),
        (
            {"status": "open", "limit": 0},
            "argument 'limit': Input should be greater than or equal to 1",
        ),
        ({"status": "open", "limit": "many"}, "argument 'limit': Input should be a valid integer"),
        ({"status": "open", "row": {}}, "argument 'row.id': Field required"),
    ],
)
def test_refusal_names_the_argument_and_the_signature(arguments, problem):
    with pytest.raises(ToolRefusedError) as caught:
        validator(find)(arguments)
    message = caught.value.for_model()
    assert message.startswith("desk.find: ")
    assert problem in message
    assert "Expected desk.find(status: Literal['open', 'closed'], limit: int = 50, " in message


def test_refusal_does_not_repeat_argument_values():
    def login(password: int) -> None: ...

    with pytest.raises(ToolRefusedError) as caught:
        validator(login)({"password": "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_parameters_with_reserved_names_are_accepted():
    def act(model_config: int, self_: int, json: int, copy: int, validate: int) -> None: ...

    names = ["model_config", "self_", "json", "copy", "validate"]
    assert validator(act)(dict.fromkeys(names, 1)) == dict.fromkeys(names, 1)


def test_json_schema_uses_the_declared_parameter_names():
    schema = validator(find).json_schema()
    assert schema["required"] == ["status"]
    assert set(schema["properties"]) == {"status", "limit", "since", "row"}
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "hint",
    [
        Annotated[str, pydantic.Field(pattern="(")],
        Annotated[Any, pydantic.Field(discriminator="x")],
    ],
    ids=["pattern", "discriminator"],
)
def test_invalid_annotation_raises_tool_definition_error(hint):
    def act(x: hint) -> None: ...

    with pytest.raises(ToolDefinitionError, match=r"^desk\.find: "):
        validator(act).build()


def test_custom_validator_error_refuses_the_argument():
    def fail(value):
        errors = [ValueError("not that one"), KeyError("oops"), SystemExit(3)]
        raise dict(zip(("value", "other", "exit"), errors, strict=True))[value]

    def act(x: Annotated[str, pydantic.BeforeValidator(fail)]) -> None: ...

    with pytest.raises(ToolRefusedError, match="argument 'x': not that one"):
        validator(act)({"x": "value"})
    with pytest.raises(ToolRefusedError, match="an argument cannot be checked: KeyError: 'oops'"):
        validator(act)({"x": "other"})
    with pytest.raises(ToolRefusedError, match="an argument cannot be checked: SystemExit: 3"):
        validator(act)({"x": "exit"})


@pytest.mark.parametrize("name", ["find", "find_2", "übung"])
def test_valid_identifier_is_accepted_as_name(name):
    assert check_name(name, "the name") == name


@pytest.mark.parametrize("name", ["", "a-b", "2a", "class", "None", "_private", "a b"])
def test_invalid_identifier_is_refused_as_name(name):
    with pytest.raises(ToolDefinitionError, match="cannot be called from a script"):
        check_name(name, "the name")


def test_validated_arguments_keep_signature_order():
    def send(to: str, subject: str, text: str = "", copies: int = 1) -> None:
        """Send."""

    check = ArgumentValidator("send", read_signature(send))
    given = {"copies": 2, "text": "c", "subject": "b", "to": "a"}
    assert list(check(given)) == ["to", "subject", "text", "copies"]
