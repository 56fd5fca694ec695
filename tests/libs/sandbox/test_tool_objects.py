"""Tests of the objects that scripts see as connections and actions."""

from typing import Any

import pytest

from delf_sandbox.guest.calls import ToolFunction, ToolNamespace

NO_CALLER: Any = None


@pytest.mark.parametrize("name", ["misuse", "call", "send"])
def test_action_of_any_public_name_is_an_action(name: str) -> None:
    board = ToolNamespace(NO_CALLER, "board", [name])
    assert type(getattr(board, name)) is ToolFunction
