"""Explanations of failed checks: the expectation, and what came instead, in short words."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

from pydantic_core import to_jsonable_python
from pydantic_evals.evaluators.evaluator import EvaluationResult
from pydantic_evals.reporting import ReportCase

_MAX_CHARACTERS: Final = 200
# The number of equal characters that are shown before the first difference.
_EQUAL_SHOWN: Final = 20
_COMPARING_CHECKS: Final = ("Equals", "EqualsExpected")


def expectation_of(check: EvaluationResult[Any], case: ReportCase[Any, Any, Any]) -> str | None:
    """Return what a check expects, as a short text; None for a check without arguments."""
    # EqualsExpected has no arguments, but expects the answer that the case has.
    if check.source.arguments is None and check.source.name != "EqualsExpected":
        return None
    text = _text(_wanted(check, case))
    if check.source.name in _COMPARING_CHECKS:
        return _short(text, _start_to_show(text, _text(case.output)))
    return _short(text)


def reason_of(check: EvaluationResult[Any], case: ReportCase[Any, Any, Any]) -> str:
    """Return why a check failed: ``the answer is 41``, or the reason that the check gives."""
    if check.reason:
        return check.reason
    if check.source.name == "MaxDuration":
        return f"it took {case.task_duration:.1f} s"
    if check.source.name == "HasMatchingSpan":
        return "no span matches"
    answer = _text(case.output)
    start = 0
    if check.source.name in _COMPARING_CHECKS:
        start = _start_to_show(answer, _text(_wanted(check, case)))
    return f"the answer is {_short(answer, start)}"


def _wanted(check: EvaluationResult[Any], case: ReportCase[Any, Any, Any]) -> object:
    """Return the value with which a check compares the answer, or else the check's arguments."""
    if check.source.name == "EqualsExpected":
        return case.expected_output
    if check.source.name == "Equals" and "value" in check.source.kwargs:
        return check.source.kwargs["value"]
    # A single positional argument is the only item of the tuple ``args``.
    return check.source.args[0] if check.source.args else check.source.kwargs


def _text(value: object) -> str:
    plain = to_jsonable_python(value, fallback=repr, bytes_mode="base64")
    return repr(plain) if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _start_to_show(text: str, other: str) -> int:
    """Return the index from which to show a text, so that its first difference is shown.

    The text is compared with ``other``.
    """
    pairs = zip(text, other, strict=False)
    equal_pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    common_length = len(list(equal_pairs))
    is_seen_from_the_start = common_length < _MAX_CHARACTERS // 2
    return 0 if is_seen_from_the_start else common_length - _EQUAL_SHOWN


def _short(text: str, start: int = 0) -> str:
    """Return a part of a text, with marks of what is left out."""
    end = start + _MAX_CHARACTERS
    before = "…" if start else ""
    after = "…" if end < len(text) else ""
    return f"{before}{text[start:end]}{after}"
