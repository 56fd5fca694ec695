"""Words of a request in messages."""

import dataclasses

import pytest

from delf.testing import request_for
from delf_approval_slack.blocks import title_of


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        ("write", "changes something"),
        ("irreversible", "cannot be undone"),
        ("a new level", "a new level"),
    ],
)
def test_every_effect_level_has_a_description(effect: str, words: str) -> None:
    request = dataclasses.replace(request_for(), effect=effect)  # type: ignore[arg-type]
    assert words in title_of(request)
