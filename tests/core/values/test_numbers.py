"""Counts in texts of others."""

import pytest

from delf.values.numbers import parse_count


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("007", 7), ("9" * 15, 10**15 - 1)])
def test_count_is_parsed_from_digits(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", " 1", "+1", "-1", "1.0", "²", "١", "9" * 16, "9" * 5000])
def test_count_of_other_characters_is_none(text):
    assert parse_count(text) is None
