"""Tests that Markdown answers are shown whole on a terminal of any width."""

import io

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rich.console import Console

from delf_cli.markdown import render_markdown

WIDE = """\
| id | mail | note |
|---|---|---|
| 550e8400-e29b-41d4-a716-446655440000 | ada.lovelace@example-company.org | it is delayed |
"""


def shown(text: str, width: int) -> str:
    page = render_markdown(text, width)
    assert page is not None
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(page)
    return capture.get()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_table_cells_are_never_cut_or_split(width):
    text = shown(WIDE, width)
    assert "550e8400-e29b-41d4-a716-446655440000" in text
    assert "ada.lovelace@example-company.org" in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


def test_wide_rows_are_shown_as_blocks():
    assert shown(WIDE, 60).strip().splitlines() == [
        "id: 550e8400-e29b-41d4-a716-446655440000",
        "mail: ada.lovelace@example-company.org",
        "note: it is delayed",
    ]


def test_fitting_table_is_wrapped_between_words():
    long = " ".join(["several words of a note"] * 6)
    lines = shown(f"| id | note |\n|---|---|\n| 1 | {long} |\n", 60).splitlines()
    words = " ".join(line.strip(" ─") for line in lines).split()
    assert set(words) == {"id", "note", "1", "several", "words", "of", "a"}


@pytest.mark.parametrize("text", ["**a** <b>bold</b> and <br> x", "# T\n<div>kept</div>\n"])
def test_html_in_markdown_is_shown_as_text(text):
    assert ("<b>bold</b>" if "bold" in text else "<div>kept</div>") in shown(text, 80)


@pytest.mark.parametrize(
    "text",
    [
        "```html\n{}\n```",
        "~~~\n{}\n~~~",
        "A list:\n\n    {}\n",
        "Write `{}` there.",
        "{}",
        "# {}",
        "| a |\n|---|\n| {} |\n",
    ],
)
@pytest.mark.parametrize(
    "code", ["<div class='a'>x</div>", "if a <b: print('<x>')", "List<int>", "<https://a.example>"]
)
def test_angle_brackets_are_shown_as_written(text, code):
    assert code in shown(text.format(code), 80).replace("─", "")


def test_lines_of_code_have_no_margin():
    code = ["def double(x):", "    return x * 2", "", "    # *not* words"]
    text = "```python\n" + "\n".join(code) + "\n```"
    lines = [line.rstrip() for line in shown(text, 80).splitlines()]
    first = lines.index(code[0])
    assert lines[first : first + 4] == code


def test_markdown_with_an_image_is_shown_raw():
    assert render_markdown("# A\n\n![a picture](https://example.org/picture.png)", 80) is None


words = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=30)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(words, min_size=3, max_size=3), min_size=1, max_size=4))
def test_markdown_tables_show_every_word(rows):
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = f"| a | b | c |\n|---|---|---|\n{table}\n"
    page = render_markdown(text, 50)
    assume(page is not None)
    squashed = "".join(shown(text, 50).split())
    assert all(word in squashed for row in rows for word in row)
