"""Mail as it comes: charsets, nesting, broken headers, large files. Bounded, and never an exception."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from delf_gmail import Gmail
from delf_gmail.html_text import text_of
from delf_gmail.reading import decoded
from support.google import GoogleServer
from support.google.fixtures import USER


def plain(charset: str, text: str, declared: str | None = None) -> bytes:
    body = base64.encodebytes(text.encode(charset))
    return (
        f'Subject: x\r\nContent-Type: text/plain; charset="{declared or charset}"\r\n'
        "Content-Transfer-Encoding: base64\r\n\r\n"
    ).encode() + body


@pytest.fixture
async def read(google: GoogleServer, connect: Any) -> Any:
    gmail = connect(Gmail)

    async def one(raw: bytes) -> Any:
        return await gmail.read(google.gmail.deliver(USER, raw).id)

    yield one
    await gmail.aclose()


@pytest.mark.parametrize(
    ("charset", "text"),
    [
        ("utf-8", "Zażółć 😀"), ("iso-8859-1", "Grüße"), ("windows-1252", "“quoted” €"),
        ("koi8-r", "Привет"), ("gb18030", "你好世界"), ("shift_jis", "こんにちは"),
        ("iso-2022-jp", "こんにちは"), ("euc-kr", "안녕하세요"), ("utf-16", "Grüße"), ("utf-7", "Grüße"),
    ],
)  # fmt: skip
async def test_charset_of_a_part_is_decoded(read: Any, charset: str, text: str) -> None:
    assert (await read(plain(charset, text)))["text"] == text


@pytest.mark.parametrize(
    "declared", ["nonsense", "utf-8", "x" * 500, "idna", "base64", "rot13", "../../x"]
)
async def test_unknown_charset_falls_back(read: Any, declared: str) -> None:
    assert "Gr" in (await read(plain("iso-8859-1", "Grüße", declared)))["text"]


@pytest.mark.parametrize("charset", ["koi8-r", "iso-2022-jp", "shift_jis", "utf-8", "utf-16"])
@pytest.mark.parametrize(
    "meta",
    [
        "<meta charset={}>",
        "<META http-equiv='Content-Type'\n content='text/html; charset={}'>",
        '<meta name="viewport" content="x"><meta charset = "{}">',
    ],
)
async def test_html_meta_charset_is_used_without_a_header(
    read: Any, meta: str, charset: str
) -> None:
    text = "こんにちは" if "j" in charset else "Привет"
    stored = "utf-8" if charset == "utf-16" else charset
    page = f"<html><head>{meta.format(charset)}</head><body>{text}</body></html>".encode(stored)
    head = b"Subject: x\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    assert (await read(head + base64.encodebytes(page)))["text"] == text


@pytest.mark.parametrize(
    ("declared", "charset", "text"),
    [
        ("gb2312", "gbk", "囍朱镕基"),
        ("GB_2312-80", "gb18030", "€你好"),
        ("shift_jis", "cp932", "①髙﨑～"),
        ("cp932", "cp932", "①髙﨑"),
        ("x-sjis", "cp932", "㈱"),
        ("ks_c_5601-1987", "cp949", "똠방각하"),
        ("euc-kr", "cp949", "펲시"),
        ("big5", "cp950", "€中文"),
        ("iso-8859-8-i", "iso-8859-8", "שלום"),
        ("iso-8859-8-e", "iso-8859-8", "שלום"),
        ("iso-8859-1", "cp1252", "“quoted” – €"),
        ("us-ascii", "cp1252", "it’s"),
        ("windows-874", "cp874", "สวัสดี"),
        ("x-mac-roman", "macroman", "Grüße"),
    ],
)
async def test_charset_label_is_decoded_by_its_superset(
    read: Any, declared: str, charset: str, text: str
) -> None:
    assert (await read(plain(charset, text, declared)))["text"] == text
    word = base64.b64encode(text.encode(charset)).decode()
    assert decoded(f"=?{declared}?b?{word}?=") == text


def alternatives(text: str, page: str) -> bytes:
    return (
        'Subject: x\r\nContent-Type: multipart/alternative; boundary="b"\r\n\r\n'
        f"--b\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{text}\r\n"
        f"--b\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{page}\r\n--b--\r\n"
    ).encode()


LONG = "<p>" + "The invoice is due on Friday and amounts to 700 euros. " * 5 + "</p>"


@pytest.mark.parametrize(
    ("text", "page", "wins"),
    [
        ("Your email client does not support HTML.", "<p>Lunch at 12?</p>", "Lunch at 12?"),
        ("Ihr Programm zeigt kein HTML an.", LONG, "700 euros"),
        ("Please view this message in a browser: https://x.example/a", LONG, "700 euros"),
        ("Lunch at 12?", "<p>Lunch at 12?</p>", "Lunch at 12?"),
        ("Read the HTML book.", "<p>Read the <b>HTML book</b>.</p>", "Read the HTML book."),
        ("The plain text of it. " * 40, LONG, "The plain text"),
        ("See the list: https://x.example/1", "<p>See <a href='https://x.example/" + "y" * 300 + "'>it</a></p>", "See the list"),
    ],
)  # fmt: skip
async def test_placeholder_alternative_does_not_hide_the_text(
    read: Any, text: str, page: str, wins: str
) -> None:
    assert wins in (await read(alternatives(text, page)))["text"]


async def test_raw_bytes_in_headers_are_decoded(read: Any) -> None:
    raw = b"From: B\xf6b <bob@example.com>\r\nSubject: Gr\xfc\xdfe \xff\r\nTo: \xff\r\n\r\nx"
    assert "bob@example.com" in (await read(raw))["sender"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=?UTF-8?B?R3LDvMOfZQ==?= Bob", "Grüße Bob"),
        ("=?iso-8859-1?q?Gr=FC=DFe?=", "Grüße"),
        ("=?nonsense?q?Hello?=", "Hello"),
        ("日本 =?utf-8?q?x?= ü…", "日本 x ü…"),
        ("=?utf-8?b?!!!!?=", None),
        ("=?utf-8?q?=GG=?=", None),
        ("=?" * 1000, None),
    ],
)
def test_encoded_words_in_headers_are_decoded(value: str, text: str | None) -> None:
    assert decoded(value) == text or text is None


async def test_deeply_nested_message_is_read(read: Any) -> None:
    depth = 80
    raw = b"Subject: x\r\n"
    for number in range(depth):
        raw += (
            f'Content-Type: multipart/mixed; boundary="b{number}"\r\n\r\n--b{number}\r\n'.encode()
        )
    raw += b"Content-Type: text/plain\r\n\r\nthe core\r\n"
    for number in reversed(range(depth)):
        raw += f"--b{number}--\r\n".encode()
    got = await read(raw)
    assert got["subject"] == "x"
    assert got["text"] in ("", "the core")


async def test_message_with_ten_thousand_parts_is_read(read: Any) -> None:
    raw = b'Subject: x\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
    raw += b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n" * 10_000 + b"--b--\r\n"
    assert (await read(raw))["text"].count("x") == 10_000


async def test_attachment_names_lose_their_path(read: Any) -> None:
    raw = b'Content-Type: multipart/mixed; boundary="b"\r\n\r\n'
    for name in (
        "../../etc/passwd",
        "C:\\\\x\\\\evil.exe",
        "a\x00b.txt",
        "..",
        "=?utf-8?q?=2E=2E=2Fx?=",
    ):
        raw += f'--b\r\nContent-Type: application/x; name="{name}"\r\nContent-Disposition: attachment; filename="{name}"\r\n\r\nx\r\n'.encode()
    names = [file["name"] for file in (await read(raw + b"--b--\r\n"))["attachments"]]
    assert names[:2] == ["passwd", "evil.exe"]
    assert not any(
        "/" in name or "\\" in name or "\0" in name or name.strip(".") == "" for name in names
    )


async def test_invitation_is_listed_as_attachment(
    google: GoogleServer, connect: Any, read: Any
) -> None:
    raw = (
        b'Subject: x\r\nContent-Type: multipart/alternative; boundary="b"\r\n\r\n'
        b"--b\r\nContent-Type: text/plain\r\n\r\nCome\r\n"
        b"--b\r\nContent-Type: text/calendar; method=REQUEST\r\n\r\nBEGIN:VCALENDAR\r\n--b--\r\n"
    )
    got = await read(raw)
    assert (got["text"], [file["name"] for file in got["attachments"]]) == ("Come", ["invite.ics"])
    gmail = connect(Gmail)
    assert (await gmail.attachment(got["id"], "invite.ics"))["data"].startswith(b"BEGIN")
    await gmail.aclose()


async def test_forwarded_message_text_is_included(read: Any) -> None:
    raw = (
        b'Subject: Fwd\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
        b"--b\r\nContent-Type: text/plain\r\n\r\nSee below\r\n"
        b"--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: Inner\r\n\r\nInner text\r\n--b--\r\n"
    )
    assert (await read(raw))["text"] == "See below\n\nInner text"


@pytest.mark.parametrize(
    "raw",
    [b"", b"\r\n", b"no header at all", b"\xff\xfe\x00", b"Content-Type: multipart/mixed\r\n\r\nx"],
)
async def test_malformed_message_is_read(read: Any, raw: bytes) -> None:
    got = await read(raw)
    assert isinstance(got["text"], str)


async def test_large_attachments_are_downloaded(google: GoogleServer, connect: Any) -> None:
    gmail = connect(Gmail)
    data = bytes(range(256)) * 20_000
    raw = (
        (
            b'Subject: x\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
            b"--b\r\nContent-Type: text/plain\r\n\r\nsmall\r\n--b\r\nContent-Type: application/zip\r\n"
            b"Content-Disposition: attachment; filename=big.zip\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        )
        + base64.encodebytes(data)
        + b"--b--\r\n"
    )
    message = google.gmail.deliver(USER, raw)
    got = await gmail.read(message.id)  # what is not asked for is not fetched
    assert max(item.received for item in google.seen) < 5000
    assert got["attachments"][0]["size"] == len(data)
    assert (await gmail.attachment(message.id, "big.zip"))["data"] == data
    await gmail.aclose()


@pytest.mark.parametrize(
    "html",
    [
        "<" * 100_000, "<div>" * 50_000 + "x", "<a href='" * 10_000, "&#" * 50_000, "<!--" * 10_000,
        "<p " + "a=b " * 50_000 + ">x", "<![CDATA[" * 5000, "<script>" + "x" * 100_000, "<td>" * 50_000,
    ],
)  # fmt: skip
def test_hostile_html_is_converted_quickly(html: str) -> None:
    assert isinstance(text_of(html), str)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<html><head><title>no</title><meta charset=utf-8><body>Hi</body></html>", "Hi"),
        ("a<svg viewBox='0 0 1 1'/>b<svg><svg/>no</svg>c", "abc"),
        ('<p title="the hidden truth" class="not hidden now">Hi</p>', "Hi"),
        ('<p data-x="display:none">Hi</p>', "Hi"),
        ("<p HIDDEN>no</p><p Style='display : none'>no</p>Hi", "Hi"),
        ("<script>if (a<b) w('<script>')</script>Hi", "Hi"),
        ("<style><!-- p {} </STYLE >Hi<title><p></title>", "Hi"),
        ('<a title=" href=http://no" href="HTTPS://x.example">t</a>', "t (HTTPS://x.example)"),
        ("<a href=http://x.example/?a='b'>t</a>", "t (http://x.example/?a='b')"),
        ("<img data-alt='no' alt=Hi>", "Hi"),
    ],
)
def test_html_shows_what_a_browser_shows(html: str, text: str) -> None:
    assert text_of(html) == text
