"""Tests of options that take several values, and get one."""

from pathlib import Path

import pytest

from delf.values.sequences import one_or_more


@pytest.mark.parametrize("one", ["a.csv", b"b.csv", Path("c.csv"), {"model": "m"}, 5, len])
def test_single_value_becomes_a_tuple(one):
    assert one_or_more(one) == (one,)


@pytest.mark.parametrize("several", [["a", "b"], ("a", "b"), {"a": 1, "b": 2}.keys(), iter("ab")])
def test_several_values_become_a_tuple(several):
    assert one_or_more(several) == ("a", "b")


def test_empty_list_becomes_an_empty_tuple():
    assert one_or_more([]) == ()
