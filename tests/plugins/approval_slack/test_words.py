"""Words of a request in messages."""

import dataclasses

import pytest

from delf_approval_slack.blocks import title_of
from delf_devkit.testing.contracts.approval import request_for


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        ("write", "changes data"),
        ("irreversible", "cannot be undone"),
        ("a new level", "a new level"),
    ],
)
def test_every_level_of_effects_has_words(effect: str, words: str) -> None:
    request = dataclasses.replace(request_for(), effect=effect)  # type: ignore[arg-type]
    assert words in title_of(request)
