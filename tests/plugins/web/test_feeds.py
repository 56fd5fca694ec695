"""Feeds that are damaged or vague."""

import pytest

from delf.notes import notes_of_call
from delf_web.document import Document
from delf_web.feeds import read_feed


def feed(items: str, end: str = "</channel></rss>") -> Document:
    head = '<?xml version="1.0"?><rss version="2.0"><channel><title>t</title>'
    content = f"{head}{items}{end}".encode()
    return Document(
        url="https://site.example/feed", kind="application/rss+xml", charset=None, content=content
    )


@pytest.mark.parametrize(
    ("written", "date"),
    [
        ("Mon, 02 Feb 2026 10:00:00 +0100", "2026-02-02T09:00:00Z"),
        ("Mon, 02 Feb 2026 10:00 EST", "2026-02-02T15:00:00Z"),
        ("2026-02-02T10:00:00Z", "2026-02-02T10:00:00Z"),
        ("2026-02-02T10:00:00", "2026-02-02T10:00:00"),
        ("2026-02-02", "2026-02-02"),
    ],
)
def test_feed_entry_date_is_as_precise_as_the_feed(written, date):
    (entry,) = read_feed(feed(f"<item><title>a</title><pubDate>{written}</pubDate></item>"))
    assert entry["date"] == date


@pytest.mark.parametrize(
    ("page", "reported"),
    [
        (feed("<item><title>a</title></item><item><title>b", ""), "is damaged"),
        (feed(""), "has no entries"),
        (feed("<item><title>a</title></item>"), ""),
    ],
)
def test_damaged_and_empty_feeds_are_reported(page, reported):
    with notes_of_call() as notes:
        read_feed(page)
    assert reported in " ".join(notes)
    assert bool(notes) == bool(reported)


@pytest.mark.parametrize(
    ("title", "shown"),
    [("x&lt;y and z&gt;w", "x<y and z>w"), ("&lt;b&gt;Bold&lt;/b&gt;", "Bold"), (" a\n b", "a b")],
)
def test_plain_title_of_a_feed_keeps_its_angle_brackets(title, shown):
    (entry,) = read_feed(feed(f"<item><title>{title}</title></item>"))
    assert entry["title"] == shown
