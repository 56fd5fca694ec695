"""Answers of families of models: exactly one script runs, or none."""

import pytest

from delf_strategy_codegen.extract import find_script

from .answers import SCRIPT
from .model_answers import CALLS, FENCES, NONE, REASONING, SEVERAL


@pytest.mark.parametrize("name", REASONING)
def test_draft_in_reasoning_is_not_a_script(name):
    assert find_script(REASONING[name]).code == SCRIPT


@pytest.mark.parametrize("name", CALLS)
def test_tool_call_in_a_model_familys_notation_is_read_as_script(name):
    assert find_script(CALLS[name]).code == SCRIPT


@pytest.mark.parametrize("name", FENCES)
def test_fence_is_recognised_in_every_notation(name):
    assert find_script(FENCES[name]).code == SCRIPT


@pytest.mark.parametrize("name", SEVERAL)
def test_reader_chooses_the_expected_block_of_several(name):
    answer, expected = SEVERAL[name]
    assert find_script(answer).code == expected
    if expected is None:
        assert "one block" in find_script(answer).why


@pytest.mark.parametrize("name", NONE)
def test_reader_refuses_prose_and_incomplete_scripts(name):
    assert find_script(NONE[name]).code is None


def test_corpus_is_large_enough():
    assert sum(map(len, (REASONING, CALLS, FENCES, SEVERAL, NONE))) > 100
