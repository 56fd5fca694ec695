"""Text as a person is shown it."""

import time

import pytest

from delf.terminal import visible
from support.shown import SHOWN


@pytest.mark.parametrize(("text", "shown"), SHOWN.items(), ids=map(ascii, SHOWN))
def test_what_cannot_be_seen_and_names_that_pass_for_others_are_shown_as_such(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize("text", SHOWN.values(), ids=map(ascii, SHOWN.values()))
def test_what_is_shown_once_is_shown_the_same_again(text):
    assert visible(text) == text


@pytest.mark.parametrize("sign", ["a+", "a.", "é@", "а.", "://", "\u200b", "domain:", "é"])
@pytest.mark.slow
def test_a_long_text_takes_no_long_time(sign):
    started = time.process_time()
    visible(sign * 50_000 + "é")
    assert time.process_time() - started < 5
