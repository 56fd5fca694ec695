"""What tells calls from each other, however large their arguments are."""

from __future__ import annotations

import re
from typing import Any

import pytest

from delf.engine.approvals.identity import identity

ROWS = [{"id": number, "name": f"row {number}"} for number in range(3_000)]


@pytest.mark.parametrize(
    ("arguments", "defaults"),
    [({"rows": ROWS}, {}), ({"rows": ROWS, "also": "x"}, {"also": "x"})],
)
def test_a_call_is_known_without_its_defaults(
    arguments: dict[str, Any], defaults: dict[str, Any]
) -> None:
    known = identity("take", arguments, arguments, defaults)
    less = {name: value for name, value in arguments.items() if name not in defaults}
    assert identity("take", less, less, defaults) == known
    other = {**arguments, "rows": [*ROWS, {}]}
    assert identity("take", other, other, defaults) != known


def test_an_object_that_shows_less_than_it_holds_is_known_by_its_source() -> None:
    made = {"pattern": re.compile("a"), "rows": ROWS}
    given = {"pattern": "a", "rows": ROWS}
    assert identity("take", made, given) == identity("take", made, given)
    assert identity("take", made, made) != identity("take", made, made)
