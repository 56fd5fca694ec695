"""The identity of calls, however large their arguments are."""

from __future__ import annotations

from typing import Any

import pytest

from delf_engine.calls.call import identity

ROWS = [{"id": number, "name": f"row {number}"} for number in range(3_000)]


@pytest.mark.parametrize(
    ("more", "defaults", "is_same"),
    [
        ({}, {}, True),
        ({"also": "x"}, {"also": "x"}, True),
        ({"also": "y"}, {"also": "x"}, False),
        ({"also": 1}, {"also": True}, False),
        ({"also": [1]}, {"also": [True]}, False),
        ({"also": "x"}, {"also": object()}, False),
    ],
)
def test_call_identity_ignores_default_values(
    more: dict[str, Any], defaults: dict[str, Any], is_same: bool
) -> None:
    known = identity("take", {"rows": ROWS}, defaults)
    assert (identity("take", {"rows": ROWS, **more}, defaults) == known) is is_same
    assert identity("take", {"rows": [*ROWS, {}]}, defaults) != known


def test_unencodable_calls_never_share_an_identity() -> None:
    given = {"it": object()}
    assert identity("take", given, {}) != identity("take", given, {})
