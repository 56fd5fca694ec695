"""Tests of services' texts, as a prompt shows them."""

import pytest

from delf.tools.json_schema import clean
from delf_schemas.names import sentences

START = "Start of the booking. Local time of the building, as YYYY-MM-DD HH:MM."


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        (START, 160, START),
        (START, 60, "Start of the booking."),
        ("Length. In steps of 15, at most 240.", 60, "Length. In steps of 15, at most 240."),
        ("Length", 60, "Length"),
        ("One sentence that is too long for its room. B.", 20, "One sentence that i…"),
        (None, 60, ""),
    ],
)
def test_description_is_cut_after_whole_sentences(text, limit, shown):
    assert sentences(text, limit) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<b>Bold</b> words.<br/>", "Bold words."),
        ("as <revision>:<path>", "as <revision>:<path>"),
        ("<site>-<hub> codes", "<site>-<hub> codes"),
        ("<a href='x'>here</a> <SCRIPT>x</SCRIPT>", "here x"),
        ("see [this](https://a.example/b_(c)), please", "see this, please"),
    ],
)
def test_markup_is_removed_and_placeholders_kept(text, shown):
    assert clean(text, 200) == shown
