"""Docs' actions against a server that speaks as Docs does, with its indexes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delf.errors import ToolRefusedError
from delf.testing import Call, ConnectionContract
from delf_docs import Docs
from delf_docs.blocks import utf16_length
from delf_google.connection import SCOPE_URL_PREFIX
from delf_google.errors import GoogleError, LostAnswerError
from support.google import GoogleServer
from support.google.docs import Char, Document, Paragraph

NOTES = """# Plan 😀

Some **bold**, *italic*, ~~old~~ and `code` words, and [a link](https://x.example/).

- one
- two 🎉 **strong**
    - nested
    - deeper
- three

| name | net |
|---|---|
| Ada | **7.5** |
| Bob 😀 | 9 |

## Next steps

1. first
1. second

The end.
"""


class TestDocs(ConnectionContract):
    check_refuses = False
    logs_in = False  # tests/libs/google has refused logins, of all services at once
    untested = ("rewrite", "trash", "delete", "format")
    calls = (
        Call("read", document="1file000002"),
        Call("create", title="Notes", markdown=NOTES),
        Call("append", document="1file000002", markdown="More"),
        Call("replace", document="1file000002", find="Hello", replacement="Bye"),
    )
    failing_calls = (
        Call("read", document="nowhere"),
        Call("format", document="1file000002", find="nowhere", bold=True),
        Call("append", document="1file000002", markdown=""),
    )

    @pytest.fixture
    def connection(self, google: GoogleServer, connect: Any) -> Any:
        file = google.drive.add("Notes", "application/vnd.google-apps.document")
        google.docs.documents[file.id] = Document(
            file.id, "Notes", [Paragraph([Char(c) for c in "Hello"])]
        )
        return connect(Docs)


@pytest.fixture
async def docs(connect: Any) -> Any:
    made = connect(Docs)
    yield made
    await made.aclose()


async def test_markdown_round_trips_through_a_document(docs: Any) -> None:
    made = await docs.create("Notes", NOTES)
    assert (await docs.read(made["id"]))["markdown"] == NOTES
    assert (await docs.read(made["link"]))["title"] == "Notes"


async def test_document_has_headings_lists_and_tables(google: GoogleServer, docs: Any) -> None:
    key = (await docs.create("Notes", NOTES))["id"]
    blocks = google.docs.documents[key].blocks
    kinds = [
        (type(b).__name__, b.text[:6], b.style["namedStyleType"], b.bullet)
        for b in blocks
        if isinstance(b, Paragraph)
    ]
    assert kinds[0] == ("Paragraph", "Plan 😀", "HEADING_1", None)
    nested = next(b for b in blocks if isinstance(b, Paragraph) and b.text == "nested\n")
    assert nested.bullet["nestingLevel"] == 1
    assert all(
        b.bullet is None
        for b in blocks
        if isinstance(b, Paragraph) and b.text in ("The end.\n", "Next steps\n")
    )
    assert (
        len([b for b in blocks if isinstance(b, Paragraph) and b.text == "\n"]) == 0
    )  # no empty lines


async def test_append_and_rewrite_change_the_document(docs: Any) -> None:
    key = (await docs.create("Notes", "# One\n\nfirst"))["id"]
    await docs.append(key, "- item 😀\n\n```\ncode()\n```")
    assert (await docs.read(key))["markdown"] == "# One\n\nfirst\n\n- item 😀\n\n`code()`\n"
    await docs.rewrite(key, "All *new*")
    assert (await docs.read(key))["markdown"] == "All *new*\n"


async def test_html_in_lists_and_links_of_any_case_are_kept(docs: Any) -> None:
    written = "- <div>a</div>\n- [b](HTTPS://b.example)\n"
    key = (await docs.create("Notes", written))["id"]
    assert (await docs.read(key))["markdown"] == written


async def test_text_is_appended_below_a_table(docs: Any) -> None:
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    key = (await docs.create("Notes", f"# Head\n\n{table}"))["id"]
    await docs.append(key, "the end")
    assert (await docs.read(key))["markdown"] == f"# Head\n\n{table}\n\nthe end\n"


async def test_appended_text_does_not_inherit_the_previous_style(
    google: GoogleServer, docs: Any
) -> None:
    key = (await docs.create("Notes", "- **bold item**"))["id"]
    await docs.append(key, "plain text")
    added = google.docs.documents[key].blocks[1]
    assert (added.text, added.bullet, added.chars[0].style) == ("plain text\n", None, {})


async def test_replace_and_format_change_matching_text(docs: Any) -> None:
    key = (await docs.create("Notes", "Net 😀 7, net 7\n\nNet"))["id"]
    assert await docs.replace(key, "7", "8.5 €") == {"changed": 2}
    assert await docs.replace(key, "nowhere", "x") == {"changed": 0}
    assert await docs.format(key, "8.5", bold=True, link="https://x.example/") == {"changed": 2}
    assert await docs.format(key, "Net", heading=2) == {"changed": 2}
    assert (await docs.read(key))["markdown"] == (
        "## Net 😀 [**8.5**](https://x.example/) €, net [**8.5**](https://x.example/) €\n\n## Net\n"
    )
    await docs.format(key, "8.5", bold=False, link="")
    assert "**" not in (await docs.read(key))["markdown"]
    for arguments in ({"find": "Net"}, {"find": "", "bold": True}, {"find": "Net", "heading": 7}):
        with pytest.raises(ToolRefusedError):
            await docs.format(key, **arguments)


async def test_concurrent_change_is_retried_and_finally_reported(
    google: GoogleServer, docs: Any
) -> None:
    key = (await docs.create("Notes", "text"))["id"]
    get, times = google.handlers["docs.documents.get"], 2

    def changed_meanwhile(call: Any) -> Any:
        nonlocal times
        found = get(call)
        times -= 1
        google.docs.documents[key].revision += times >= 0
        return found

    google.handlers["docs.documents.get"] = changed_meanwhile
    await docs.append(key, "more")  # looked at again, with the right indexes
    times = 0
    assert (await docs.read(key))["markdown"] == "text\n\nmore\n"
    times = 100
    with pytest.raises(GoogleError, match="nothing was written"):
        await docs.append(key, "more")


async def test_refused_change_is_not_taken_for_a_concurrent_one(
    google: GoogleServer, connect: Any
) -> None:
    docs = connect(Docs, name="revisions")
    key = (await docs.create("Notes", "text"))["id"]
    google.fail("docs.documents.batchUpdate", 400, "badRequest")
    with pytest.raises(GoogleError, match="revisions: write a document: "):
        await docs.append(key, "more")
    assert (await docs.read(key))["markdown"] == "text\n"
    await docs.aclose()


async def test_append_with_a_lost_answer_is_not_repeated(google: GoogleServer, docs: Any) -> None:
    key = (await docs.create("Notes", "text"))["id"]
    google.lose("docs.documents.batchUpdate")
    with pytest.raises(LostAnswerError):
        await docs.append(key, "more")
    assert (await docs.read(key))["markdown"] == "text\n\nmore\n"
    google.fail("docs.documents.batchUpdate", 403, "forbidden")
    with pytest.raises(GoogleError, match=r"the document \w+ was made, and is empty"):
        await docs.create("Notes", "text")


async def test_lost_answer_to_the_first_text_leaves_open_whether_it_was_written(
    google: GoogleServer, docs: Any
) -> None:
    google.lose("docs.documents.batchUpdate")
    with pytest.raises(LostAnswerError, match=r"\w+ was made, perhaps with its text") as caught:
        await docs.create("Notes", "text")
    assert "is empty" not in caught.value.message
    (key,) = google.docs.documents
    assert (await docs.read(key))["markdown"] == "text\n"


async def test_documents_can_be_trashed_and_deleted(google: GoogleServer, docs: Any) -> None:
    key = (await docs.create("Notes"))["id"]
    await docs.trash(key)
    assert google.drive.files[key].data["trashed"]
    await docs.delete(key)
    with pytest.raises(GoogleError, match="not found"):
        await docs.read(key)


async def test_links_are_written_for_web_addresses_only(google: GoogleServer, docs: Any) -> None:
    key = (await docs.create("Notes", "[x](javascript:alert(1)) [y](file:///etc/passwd)"))["id"]
    assert not any(
        "link" in char.style for block in google.docs.documents[key].blocks for char in block.chars
    )


words = (
    st.text(st.sampled_from("ab 😀é\U0001d400"), min_size=1, max_size=8).map(str.strip).filter(bool)
)
lines = st.one_of(
    words, words.map("# {}".format), st.lists(words, min_size=1, max_size=3).map(lambda w: "\n".join(f"- {x}" for x in w)),
    words.map("**{}** x".format), st.tuples(words, words).map(lambda w: f"| {w[0]} | h |\n|---|---|\n| 1 | {w[1]} |"),
)  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    first=st.lists(lines, min_size=1, max_size=4), second=st.lists(lines, min_size=1, max_size=3)
)
async def test_blocks_are_written_in_any_order(
    docs: Any, first: list[str], second: list[str]
) -> None:
    once = (await docs.create("x", "\n\n".join([*first, "end", *second])))["id"]
    twice = (await docs.create("x", "\n\n".join([*first, "end"])))["id"]
    await docs.append(twice, "\n\n".join(second))
    texts = [(await docs.read(key))["markdown"] for key in (once, twice)]
    assert texts[0] == texts[1]


async def test_concurrent_calls_do_not_overwrite_each_other(
    google: GoogleServer, docs: Any
) -> None:
    made = await docs.create("Log", "# Log")
    lines = [f"line {number}" for number in range(30)]
    named = [made["id"] if number % 2 else made["link"] for number in range(30)]
    await asyncio.gather(*map(docs.append, named, lines))
    written = (await docs.read(made["id"]))["markdown"]
    assert sorted(line for line in written.split("\n") if line in lines) == sorted(lines)


def test_units_counts_utf_16_code_units() -> None:
    assert [utf16_length(text) for text in ("", "a", "é", "😀", "👨‍👩‍👧", "\U0001d400x")] == [
        0,
        1,
        1,
        2,
        8,
        3,
    ]
    methods = {m.get("permission", m["name"]) for m in Docs.inspect(verbose=True)["methods"]}
    assert methods == {"read", "create", "editing", "format", "removing"}
    assert Docs(allow=["read", "create"]).needed_scopes() == (SCOPE_URL_PREFIX + "documents",)


@pytest.mark.parametrize("taken_out", ["\x0c", "\x01", "\x1f", "\x08", "\ue000", "\uf8ff", "\r"])
async def test_removed_control_characters_do_not_shift_styles(docs: Any, taken_out: str) -> None:
    text = (
        f"a{taken_out}b **bold** c\n\n- x{taken_out} `code`\n\n| h{taken_out} |\n|---|\n| **v** |"
    )
    made = await docs.create("Notes", text)
    shown = (await docs.read(made["id"]))["markdown"]
    assert "**bold** c" in shown
    assert "- x `code`" in shown
    assert "| **v** |" in shown


async def test_lone_surrogate_is_refused(docs: Any) -> None:
    with pytest.raises(ToolRefusedError, match="half of a character"):
        await docs.create("a\ud83d")


async def test_suggested_changes_are_not_part_of_the_text(google: GoogleServer, docs: Any) -> None:
    key = (await docs.create("Notes", "The price is 7 euros."))["id"]
    chars = google.docs.documents[key].blocks[0].chars
    chars[13:13] = [Char(c, suggested=True) for c in "77 or "]
    assert (await docs.read(key))["markdown"] == "The price is 7 euros.\n"
    await docs.format(key, "euros", bold=True)  # indexes count what is suggested, too
    assert (await docs.read(key))["markdown"] == "The price is 7 **euros**.\n"
