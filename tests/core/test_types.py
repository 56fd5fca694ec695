"""Tests of the small types that all layers use."""

from typing import Literal

import pytest

from delf.types import can_be_undone


@pytest.mark.parametrize(
    ("effect", "can_be"),
    [("read", True), ("write", True), ("irreversible", False), ("of a newer version", False)],
)
def test_effects_stricter_than_write_are_marked(effect: str, can_be: bool) -> None:
    assert can_be_undone(effect) is can_be


def test_new_effect_level_is_ordered_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = Literal["read", "note", "write", "costly", "irreversible"]
    monkeypatch.setattr("delf.types.Effect", levels)
    assert can_be_undone("note")
    assert not can_be_undone("costly")
