"""Tests of text that is shown to people."""

import time

import pytest

from delf.terminal import visible
from support.shown import SHOWN


@pytest.mark.parametrize(("text", "shown"), SHOWN.items(), ids=map(ascii, SHOWN))
def test_invisible_characters_and_lookalike_names_are_escaped(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize("text", SHOWN.values(), ids=map(ascii, SHOWN.values()))
def test_visible_text_is_idempotent(text):
    assert visible(text) == text


@pytest.mark.parametrize("sign", ["a+", "a.", "é@", "а.", "://", "\u200b", "domain:", "é"])
@pytest.mark.slow
def test_escaping_a_long_text_is_fast(sign):
    started = time.process_time()
    visible(sign * 50_000 + "é")
    assert time.process_time() - started < 5
