import collections
import dataclasses
import enum
import sys
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pydantic
import pytest
import typing_extensions as te

from delf.tools.function import tool
from delf.tools.hints import doc_of, notes_of, type_text
from delf.tools.stubs import render_stubs
from delf_engine.toolset import load_toolset

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: Annotated[str, "the letter"] = "a"


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    next: str | None = dataclasses.field(default=None, metadata={"description": "a cursor"})


class NumberPage(Page[int]):
    pass


class Counted(Generic[T]):
    pass


class CountedPage(NumberPage, Counted[str]):
    pass


@dataclasses.dataclass
class Link:
    next: "LinkAlias | None" = None


LinkAlias = te.TypeAliasType("LinkAlias", Link)


class Row(te.TypedDict, total=False):
    a: te.Required[te.ReadOnly[int]]
    b: te.ReadOnly[te.NotRequired[Annotated[str, te.Doc("bee")]]]
    c: Literal[Color.RED]


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(alias="streetName", description="with its number")
    code: str = pydantic.Field(validation_alias=pydantic.AliasChoices("zip", "code"))
    secret: str = pydantic.Field("x", exclude=True)

    @pydantic.computed_field(description="on one line")
    @property
    def line(self) -> str:
        return ""


class ByName(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True, serialize_by_alias=True)
    user_id: int = pydantic.Field(alias="userId")

    @pydantic.computed_field(alias="isAdmin")
    @property
    def is_admin(self) -> bool:
        return self.user_id == 0


class Points(pydantic.RootModel[list[Point]]):
    pass


class Answer(pydantic.BaseModel, Generic[T]):
    data: T
    tags: list[Annotated[str, pydantic.StringConstraints(max_length=3)]] = []


Pages = te.TypeAliasType("Pages", list[Page[Color]])
Pair = te.TypeAliasType("Pair", tuple[T, T], type_params=(T,))


@dataclasses.dataclass
class Batch(Generic[T]):
    page: Page[list[T]]
    numbers: NumberPage
    pair: Pair[list[T]]


# what the type is: what a script finds in a result, what it writes in an argument
TYPES: dict[str, tuple[Any, str, str]] = {
    "named tuple": (Point, '{"x": int, "y": str}', '{"x": int, ?"y": str}'),
    "typed dict": (
        Row,
        '{"a": int, ?"b": str, ?"c": Literal[\'red\']}',
        '{"a": int, ?"b": str, ?"c": Literal[\'red\']}',
    ),
    "generic dataclass": (
        Page[Point],
        '{"items": list[{"x": int, "y": str}], "next": str | None}',
        '{"items": list[{"x": int, ?"y": str}], ?"next": str | None}',
    ),
    "generic in itself": (
        Page[Page[int]],
        '{"items": list[{"items": list[int], "next": str | None}], "next": str | None}',
        '{"items": list[{"items": list[int], ?"next": str | None}], ?"next": str | None}',
    ),
    "subclass with a generic base of its own": (
        CountedPage,
        '{"items": list[int], "next": str | None}',
        '{"items": list[int], ?"next": str | None}',
    ),
    "alias of a recursive record": (
        LinkAlias,
        '{"next": dict | None}',
        '{?"next": dict | None}',
    ),
    "subclass of a generic": (
        NumberPage,
        '{"items": list[int], "next": str | None}',
        '{"items": list[int], ?"next": str | None}',
    ),
    "generic model": (
        Answer[dict[str, Color]],
        '{"data": dict[str, Literal[\'red\', \'blue\']], "tags": list[str]}',
        '{"data": dict[str, Literal[\'red\', \'blue\']], ?"tags": list[str]}',
    ),
    "model with aliases": (
        Address,
        '{"street": str, "code": str, "line": str}',
        '{"streetName": str, "zip": str, ?"secret": str}',
    ),
    "model by name": (ByName, '{"userId": int, "isAdmin": bool}', '{"user_id": int}'),
    "root model": (
        Points,
        'list[{"x": int, "y": str}]',
        'list[{"x": int, ?"y": str}]',
    ),
    "alias": (
        Pages,
        'list[{"items": list[Literal[\'red\', \'blue\']], "next": str | None}]',
        'list[{"items": list[Literal[\'red\', \'blue\']], ?"next": str | None}]',
    ),
    "members of an enum": (
        Literal[Color.RED, "x", 3],
        "Literal['red', 'x', 3]",
        "Literal['red', 'x', 3]",
    ),
    "nested in Annotated": (
        Annotated[list[Annotated[Point | None, "none at times"]], "all"],
        'list[{"x": int, "y": str} | None]',
        'list[{"x": int, ?"y": str} | None]',
    ),
    "counter": (collections.Counter[str], "dict[str, int]", "dict[str, int]"),
    "counter without arguments": (te.Counter, "Counter", "Counter"),
    "list without arguments": (te.List, "list", "list"),
    "deque": (collections.deque[int], "list[int]", "list[int]"),
}  # fmt: skip


@pytest.mark.parametrize(("hint", "found", "given"), TYPES.values(), ids=list(TYPES))
def test_type_hints_become_stub_types(hint, found, given):
    assert type_text(hint) == found
    assert type_text(hint, as_input=True) == given


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs Python 3.12")
def test_recursive_type_statement_is_written_once():
    scope: dict[str, Any] = {}
    exec("type Json = int | list[Json]\ntype Tree[T] = T | list[Tree[T]]", scope)
    assert type_text(scope["Json"]) == "int | list[Json]"
    assert type_text(scope["Tree"][int]) == "int | list[Tree]"


@pytest.mark.parametrize(
    ("hint", "doc", "notes"),
    [
        (Annotated[int, "how many"], "how many", ""),
        (Annotated[int, te.Doc("how many")], "how many", ""),
        (
            Annotated[int, pydantic.Field(description="how many", ge=1, le=9)],
            "how many; ≥ 1; ≤ 9",
            "",
        ),
        (Annotated[str, pydantic.Field(pattern="^a+$")] | None, "matches ^a+$", ""),
        (list[Annotated[str, "a letter"]], "", "[]: a letter"),
        (Point, "", "y: the letter"),
        (Page[Point], "", "items.y: the letter; next: a cursor"),
        (Row, "", "b: bee"),
        (Address, "", "streetName: with its number"),
        (Answer[int], "", "tags[]: at most 3 long"),
        (Points, "", "y: the letter"),
    ],
    ids=range(11),
)
def test_annotations_give_descriptions_and_limits(hint, doc, notes):
    assert doc_of(hint) == doc
    assert notes_of(hint, as_input=True) == notes


class Kind(enum.Enum):
    """The effect of a line.

    Attributes:
        P: It produces.
    """

    P = "p"
    S = 2
    """It stands still."""
    C = "c"


class Priority(enum.IntEnum):
    def __new__(cls, value, doc):
        member = int.__new__(cls, value)
        member._value_, member.__doc__ = value, doc
        return member

    HIGH = 1, "Within the hour."


@dataclasses.dataclass
class Timed:
    """A time.

    :ivar seconds: Since midnight.
    """

    seconds: int


@dataclasses.dataclass
class Run(Timed):
    """A run of a line.

    Attributes:
        speed: In metres
            per minute.
        kind: As reported.
    """

    speed: float
    kind: Kind
    weight: int = 0
    """In grams."""


class Place(te.TypedDict):
    """A place."""

    ref: str
    """The code."""


class Wait(Place):
    """Somebody who waits.

    Attributes
    ----------
    waiting : int
        In seconds.
    """

    waiting: int


class Measured(pydantic.BaseModel):
    """A measured value."""

    heat: float = pydantic.Field(alias="t", le=500)
    """In Fahrenheit."""


@dataclasses.dataclass
class Bare:
    n: int


@pytest.mark.parametrize(
    ("hint", "doc", "notes"),
    [
        (Kind, "The effect of a line; 'p': It produces; 2: It stands still", ""),
        (Priority | None, "1: Within the hour", ""),
        (Annotated[Kind, "the kind"], "the kind; The effect of a line; 'p': It produces; 2: It stands still", ""),
        (
            Run,
            "A run of a line",
            "seconds: Since midnight; speed: In metres per minute; kind: As reported; The effect of a line; 'p': It produces; 2: It stands still; weight: In grams",
        ),
        (list[Wait], "", "[]: Somebody who waits; ref: The code; waiting: In seconds"),
        (Measured, "A measured value", "t: In Fahrenheit; ≤ 500"),
        (Bare, "", ""),
        (collections.Counter, "", ""),
    ],
    ids=range(8),
)  # fmt: skip
def test_docstrings_of_classes_and_their_fields_describe_values(hint, doc, notes):
    assert doc_of(hint) == doc
    assert notes_of(hint, as_input=True) == notes


async def test_stub_shows_every_description_of_a_function():
    def search(
        query: Annotated[str, pydantic.Field(description="words or a phrase")],
        where: Row,
        limit: Annotated[int, pydantic.Field(le=50)] = 10,
    ) -> list[Address]:
        """Search the register.

        Args:
            limit: How many.

        Returns:
            The best first.
        """
        raise NotImplementedError

    stub = render_stubs(bound.describe() for bound in await load_toolset([tool(search)]))
    assert "limit: int = 10) -> list[{" in stub
    assert stub.splitlines()[2:] == [
        "    query: words or a phrase",
        "    where: b: bee",
        "    limit: How many; ≤ 50",
        '    returns: The best first; street: with its number; line: on one line"""',
    ]


@pytest.mark.parametrize(("hint", "item"), [(Batch[str], "str"), (Batch, "Any")])
def test_type_variable_of_several_classes_has_its_meaning_in_each(hint, item):
    page = f'{{"items": list[list[{item}]], "next": str | None}}'
    numbers = '{"items": list[int], "next": str | None}'
    pair = f"tuple[list[{item}], list[{item}]]"
    assert type_text(hint) == f'{{"page": {page}, "numbers": {numbers}, "pair": {pair}}}'


@dataclasses.dataclass
class Lists(Page[list[T]], Generic[T]):
    first: T | None = None


@dataclasses.dataclass
class Numbers(NumberPage, Generic[T]):
    first: T | None = None


@pytest.mark.parametrize(
    ("hint", "items"), [(Lists[str], "list[list[str]]"), (Numbers[str], "list[int]")]
)
def test_type_variable_of_a_class_and_its_base_has_its_meaning_in_each(hint, items):
    text = f'{{"items": {items}, "next": str | None, "first": str | None}}'
    assert type_text(hint) == text


def test_notes_replace_a_type_variable_of_several_classes():
    notes = notes_of(Batch[Point])
    assert "page.items.y: the letter" in notes
    assert "numbers.items.y" not in notes
    assert "pair.y: the letter" in notes
