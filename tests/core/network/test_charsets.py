"""Tests of the charset that a page declares."""

import time

import pytest

from delf.network.charsets import label_in_page


@pytest.mark.parametrize(
    ("page", "label"),
    [
        (b'<!-- <meta charset="utf-8"> --><meta charset="koi8-r">', "koi8-r"),
        (b'<!-- no end <meta charset="utf-8">', None),
        (b'<meta charset="koi8-r"><!-- no end', "koi8-r"),
    ],
)
def test_charset_in_a_comment_does_not_count(page: bytes, label: str | None) -> None:
    assert label_in_page(page) == label


@pytest.mark.parametrize("piece", [b"<!--", b"<?xml ", b"<meta ", b"<meta charset"])
def test_label_in_page_takes_linear_time(piece: bytes) -> None:
    started = time.process_time()
    label_in_page(piece * 25_000)
    assert time.process_time() - started < 2
