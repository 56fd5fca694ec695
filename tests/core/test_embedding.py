"""Tests of the refusals of an embedder: a refused text is never embedded again."""

import pytest

from delf.errors import ConnectionUnavailableError, LLMExecutionError
from delf.protocols.embedding import is_refusal


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (LLMExecutionError("too long", too_long=True), True),
        (LLMExecutionError("invalid text", status=400), True),
        (LLMExecutionError("too many requests", status=429), False),
        (LLMExecutionError("request timeout", status=408), False),
        (LLMExecutionError("server error", status=500), False),
        (LLMExecutionError("no answer"), False),
        (ConnectionUnavailableError("no connection"), False),
    ],
)
def test_only_a_permanent_failure_is_a_refusal(error, refused):
    assert is_refusal(error) is refused
