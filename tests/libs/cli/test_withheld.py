"""Tests of the redaction that works without the engine."""

from __future__ import annotations

import pytest

from delf_cli.withheld import Withheld

VALUE = "it'sMy\"Quoted\\Pw9"


@pytest.mark.parametrize("text", [VALUE, str(KeyError(VALUE))], ids=["plain", "repr"])
def test_values_of_variables_are_left_out(text: str) -> None:
    redacted = Withheld([VALUE]).redact_text(f"no {text} there")
    assert "[left out]" in redacted
    assert "Pw9" not in redacted
