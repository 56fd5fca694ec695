"""TypedDicts of the standard library, in a module whose annotations are strings."""

from __future__ import annotations

from typing import NotRequired, Required, TypedDict

import pytest
from pydantic import TypeAdapter, ValidationError

from delf.tools.typeddicts import validatable


class Attachment(TypedDict):
    """A TypedDict with an optional key."""

    name: str
    type: NotRequired[str]


class Partial(TypedDict, total=False):
    """A TypedDict with a required key."""

    name: Required[str]
    type: str


class Heir(Attachment, total=False):
    """Some of each."""

    size: int
    data: Required[bytes]


@pytest.mark.parametrize("kind", [Attachment, Partial])
def test_typeddict_optional_keys_are_found(kind: type) -> None:
    check = TypeAdapter(validatable(kind)).validate_python
    assert check({"name": "a.pdf"}) == {"name": "a.pdf"}
    with pytest.raises(ValidationError, match="name"):
        check({"type": "x"})


def test_typeddict_includes_inherited_keys() -> None:
    check = TypeAdapter(validatable(list[Heir])).validate_python
    assert check([{"name": "a", "data": b""}])
    for missing in ("name", "data"):
        with pytest.raises(ValidationError, match=missing):
            check([{key: b"a" for key in ("name", "data") if key != missing}])
