"""Durations as people read them."""

import pytest

from delf_cli.formats import format_duration


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0.4, "0 ms"),
        (999.4, "999 ms"),
        (999.6, "1.0 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min 00 s"),
        (125_000, "2 min 05 s"),
        (3_599_900, "1 h 00 min"),
    ],
)
def test_duration_is_rounded_before_its_unit_is_chosen(milliseconds, text):
    assert format_duration(milliseconds) == text
