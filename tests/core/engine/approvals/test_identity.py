"""What tells calls from each other, however large their arguments are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from delf.engine.approvals.identity import identity, large_identity

ROWS = [{"id": number, "name": f"row {number}"} for number in range(3_000)]


@pytest.mark.parametrize(
    ("arguments", "defaults"),
    [
        ({"rows": ROWS}, {}),
        ({"rows": ROWS, "also": "x"}, {"also": "x"}),
        ({"text": "ä" * 500_000, "data": b"\0" * 300_001}, {}),
        ({"rows": tuple(ROWS), "kinds": {1, 2.5, None}}, {}),
    ],
)
async def test_a_large_call_is_known_by_the_same(
    arguments: dict[str, Any], defaults: dict[str, Any]
) -> None:
    small = identity("take", arguments, arguments, defaults)
    assert await large_identity("take", arguments, arguments, defaults) == small
    less = {name: value for name, value in arguments.items() if name not in defaults}
    assert await large_identity("take", less, less, defaults) == small
    other = {**arguments, "rows": [*ROWS, {}]}
    assert await large_identity("take", other, other, defaults) != small


async def test_what_shows_less_than_it_holds_is_known_by_what_it_was_made_from() -> None:
    made = {"pattern": re.compile("a"), "rows": ROWS}
    given = {"pattern": "a", "rows": ROWS}
    assert await large_identity("take", made, given) == identity("take", made, given)
    assert await large_identity("take", made, made) != await large_identity("take", made, made)
