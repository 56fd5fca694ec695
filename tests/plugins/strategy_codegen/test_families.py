"""Answers of families of models: exactly one script runs, or none."""

import pytest

from delf_strategy_codegen.extract import read

from .answers import SCRIPT
from .model_answers import CALLS, FENCES, NONE, REASONING, SEVERAL


@pytest.mark.parametrize("name", REASONING)
def test_draft_in_reasoning_is_not_a_script(name):
    assert read(REASONING[name]).code == SCRIPT


@pytest.mark.parametrize("name", CALLS)
def test_tool_call_in_a_model_familys_notation_is_read_as_script(name):
    assert read(CALLS[name]).code == SCRIPT


@pytest.mark.parametrize("name", FENCES)
def test_fence_is_recognised_in_every_notation(name):
    assert read(FENCES[name]).code == SCRIPT


@pytest.mark.parametrize("name", SEVERAL)
def test_reader_chooses_the_expected_block_of_several(name):
    answer, expected = SEVERAL[name]
    assert read(answer).code == expected
    if expected is None:
        assert "one block" in read(answer).why


@pytest.mark.parametrize("name", NONE)
def test_reader_refuses_prose_and_incomplete_scripts(name):
    assert read(NONE[name]).code is None


def test_corpus_is_large_enough():
    assert sum(map(len, (REASONING, CALLS, FENCES, SEVERAL, NONE))) > 100
