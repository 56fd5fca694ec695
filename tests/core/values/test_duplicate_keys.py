"""Tests that a repeated key in a model's object is an error, in JSON and in Python notation."""

import pytest

from delf.values.duplicate_keys import DECODER, DuplicateKeyError, read_literal


@pytest.mark.parametrize("read", [DECODER.decode, read_literal], ids=["JSON", "Python"])
def test_duplicate_key_is_refused_at_any_depth(read):
    assert read('{"a": {"b": 1}, "c": [{"b": 2}]}') == {"a": {"b": 1}, "c": [{"b": 2}]}
    with pytest.raises(DuplicateKeyError, match="is in it twice"):
        read('{"a": [{"b": 1, "b": 2}]}')


def test_json_strings_may_contain_line_breaks():
    assert DECODER.decode('{"a": "x\ny"}') == {"a": "x\ny"}


def test_python_literal_with_a_call_is_refused():
    with pytest.raises(ValueError, match="malformed"):
        read_literal('{"a": exit()}')
