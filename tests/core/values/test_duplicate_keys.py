"""A key that stands twice in an object of a model is an error, in JSON and in Python's words."""

import pytest

from delf.values.duplicate_keys import DECODER, DuplicateKeyError, read_literal


@pytest.mark.parametrize("read", [DECODER.decode, read_literal], ids=["JSON", "Python"])
def test_key_that_stands_twice_is_refused_however_deep(read):
    assert read('{"a": {"b": 1}, "c": [{"b": 2}]}') == {"a": {"b": 1}, "c": [{"b": 2}]}
    with pytest.raises(DuplicateKeyError, match="is in it twice"):
        read('{"a": [{"b": 1, "b": 2}]}')


def test_text_of_json_may_hold_line_breaks():
    assert DECODER.decode('{"a": "x\ny"}') == {"a": "x\ny"}


def test_literal_of_python_calls_nothing():
    with pytest.raises(ValueError, match="malformed"):
        read_literal('{"a": exit()}')
