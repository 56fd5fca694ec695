"""Normal forms of Unicode."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

from delf.values.unicode import normalized

FORMS: tuple[Any, ...] = ("NFC", "NFKC", "NFKD")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", ["", "cafe\u0301 \uff21 \ufb01", "e\u0301 " * 2000])
def test_text_gets_the_normal_form(form: Any, text: str) -> None:
    assert normalized(text, form) == unicodedata.normalize(form, text)


def test_letter_with_very_many_accents_takes_linear_time() -> None:
    text = "cafe\N{COMBINING ACUTE ACCENT}" + "\u0300\u0316" * 200_000
    for form in FORMS[:2]:
        assert normalized(text, form).startswith("café")
