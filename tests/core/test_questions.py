"""Answers to questions, converted to the type that the question asks for."""

import math

import pytest

from delf.errors import DelfError
from delf.questions import Question


@pytest.mark.parametrize(
    ("answer", "number"),
    [(" 12 ", 12), ("12.5", 12.5), (7, 7), (2**2000, 2**2000), ("9" * 400, int("9" * 400))],
    ids=["text", "fraction", "number", "large number", "large text"],
)
def test_number_question_accepts_numbers(answer, number):
    assert Question(text="How many?", answer="number").read(answer) == number


@pytest.mark.parametrize("answer", ["", "many", True, math.inf, "nan", "1e999"])
def test_number_question_refuses_other_answers(answer):
    with pytest.raises(DelfError, match="does not answer the question"):
        Question(text="How many?", answer="number").read(answer)
