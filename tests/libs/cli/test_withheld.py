"""Tests of the redaction that works without the engine."""

from __future__ import annotations

import pytest

from delf_cli.withheld import Withheld

VALUE = "it'sMy\"Quoted\\Pw9"


@pytest.mark.parametrize("text", [VALUE, str(KeyError(VALUE))], ids=["plain", "repr"])
def test_withheld_value_is_left_out_of_a_text(text: str) -> None:
    redacted = Withheld([VALUE]).redact_text(f"no {text} there")
    assert "[left out]" in redacted
    assert "Pw9" not in redacted
