"""Documents as they come: their encodings, the dates they state, the text that they show."""

import codecs

import pytest

from delf.notes import notes_of_call
from delf_web.child import read
from delf_web.dates import stated_date
from delf_web.document import Document
from delf_web.pages import read_links, read_text

URL = "https://site.example/"
LONG = "<p>" + "A long paragraph without any letters beyond those of English. " * 9 + "</p>"
HEAD = "<script>" + "x" * 6000 + "</script>"  # more than programs look through for a charset


def document(content: bytes, kind: str = "text/html", charset: str | None = None) -> Document:
    return Document(url=URL, kind=kind, charset=charset, content=content)


def linked(data: str) -> str:
    return f'<script type="application/ld+json">{data}</script>'


def page(text: str, declared: str = "") -> str:
    meta = f'<meta charset="{declared}">' if declared else ""
    return f"<html><head>{HEAD}{meta}<title>{text}</title></head><body>{LONG}<p>{text}</p></body></html>"


GERMAN, RUSSIAN, CHINESE = (
    "Müller, Grüße für 5 € aus Köln",
    "Привет, как дела",
    "简体中文網頁的內容",
)
JAPANESE = "株式会社①の売上高は髙い"


@pytest.mark.parametrize("work", ["whole", "text"])
@pytest.mark.parametrize(
    ("content", "charset", "shown", "noted"),
    [
        pytest.param(page(GERMAN).encode(), None, GERMAN, "", id="UTF-8 that nobody declares"),
        pytest.param(page(GERMAN, "utf-8").encode(), None, GERMAN, "", id="a late meta"),
        pytest.param(page(GERMAN, "iso-8859-1").encode(), None, GERMAN, "", id="UTF-8, said other"),
        pytest.param(page(GERMAN).encode(), "iso-8859-1", GERMAN, "", id="UTF-8, served as other"),
        pytest.param(page(GERMAN, "iso-8859-1").encode("cp1252"), None, GERMAN, "", id="latin"),
        pytest.param(page(GERMAN).encode("cp1252"), "latin1", GERMAN, "", id="latin of a server"),
        pytest.param(page(GERMAN).encode("cp1252"), None, GERMAN, "Windows-1252", id="guessed"),
        pytest.param(
            page(GERMAN).encode("cp1252"), "utf-8", GERMAN, "Windows-1252", id="no UTF-8 at all"
        ),
        pytest.param(
            page(RUSSIAN, "windows-1251").encode("cp1251"), None, RUSSIAN, "", id="cp1251"
        ),
        pytest.param(
            page(f"{RUSSIAN}. " * 3).encode("koi8-r"), None, RUSSIAN, "KOI8", id="KOI8 guessed"
        ),
        pytest.param(page(CHINESE, "gb2312").encode("gb18030"), None, CHINESE, "", id="gb2312"),
        pytest.param(page(JAPANESE, "shift_jis").encode("cp932"), None, JAPANESE, "", id="sjis"),
        pytest.param(
            page("日本語", "iso-2022-jp").encode("iso2022_jp"), None, "日本語", "", id="shifting"
        ),
        pytest.param(
            codecs.BOM_UTF8 + page(GERMAN, "latin1").encode(), "latin1", GERMAN, "", id="BOM"
        ),
        pytest.param(page(GERMAN).encode("utf-16"), "utf-8", GERMAN, "", id="UTF-16 with BOM"),
        pytest.param(page(GERMAN).encode("utf-16-le"), None, GERMAN, "UTF-16", id="UTF-16 without"),
        pytest.param(page(GERMAN, "utf-16").encode(), None, GERMAN, "", id="a meta of UTF-16"),
        pytest.param(
            b"<?xml version='1.0' encoding='iso-8859-2'?>" + page("Łódź").encode("iso8859-2"),
            None,
            "Łódź",
            "",
            id="XML",
        ),
        pytest.param(
            b"<!-- <meta charset='koi8-r'> -->" + page(GERMAN, "cp1252").encode("cp1252"),
            None,
            GERMAN,
            "",
            id="a meta in a comment",
        ),
        pytest.param(
            page(GERMAN).encode() + b"<p>\xff</p>", "utf-8", GERMAN, "not UTF-8", id="stray byte"
        ),
        pytest.param(
            page(CHINESE, "gbk").encode("gbk") + b"\xff", None, CHINESE, "not gbk", id="stray, gbk"
        ),
        pytest.param(page(GERMAN).encode(), "punycode", GERMAN, "", id="no charset"),
        pytest.param(
            page(GERMAN).replace("Müller", "\0Müller").encode(), None, GERMAN, "", id="a zero"
        ),
    ],
)
def test_page_encoding_is_detected(work, content, charset, shown, noted):
    with notes_of_call() as notes:
        found = read(work, URL, "text/html", charset, content)
    assert shown in found["text"]
    assert found["title"].startswith(shown) or "\0" in content.decode("latin1")
    assert noted in " ".join(notes)
    if work == "whole":
        assert bool(notes) == bool(noted)


@pytest.mark.parametrize(
    ("kind", "content", "shown"),
    [
        ("text/plain", GERMAN.encode("cp1252"), GERMAN),
        ("text/csv", codecs.BOM_UTF8 + GERMAN.encode(), GERMAN),
        ("text/plain", GERMAN.encode("utf-16"), GERMAN),
        (
            "application/xml",
            b"<?xml version='1.0' encoding='koi8-r'?>" + RUSSIAN.encode("koi8-r"),
            RUSSIAN,
        ),
        (
            "application/rss+xml",
            f"<?xml version='1.0' encoding='windows-1251'?><rss version='2.0'><channel><item><title>"
            f"{RUSSIAN}</title></item></channel></rss>".encode("cp1251"),
            RUSSIAN,
        ),
    ],
)
def test_text_encoding_is_detected(kind, content, shown):
    found = read("text", URL, kind, None, content)["text"]
    assert shown in found
    assert not found.startswith("\ufeff")


@pytest.mark.parametrize(
    ("head", "body", "date"),
    [
        ('<meta property="og:image" content="https://x.example/2014/12/28/a.jpg">', "", None),
        ('<meta name="generator" content="Joomla! 3.9.15">', "", None),
        ('<meta property="article:modified_time" content="2024-01-31">', "", None),
        ('<meta property="article:published_time" content="03/04/2024">', "", None),
        ('<meta property="article:published_time" content="3/03/2024">', "", "2024-03-03"),
        (
            '<meta property="article:published_time" content="05/29/2007 09:49:00">',
            "",
            "2007-05-29",
        ),
        ('<meta name="dcterms.created" content="2024-01-31T10:00:00Z">', "", "2024-01-31"),
        (
            """<meta name="parsely-page" content='{"pub_date": "2024-01-31T10:00Z"}'>""",
            "",
            "2024-01-31",
        ),
        (linked('{"dateModified": "2024-01-31"}'), "", None),
        (
            linked(
                '{"@graph": [{"@type": "ImageObject", "dateCreated": "2001-01-01"}, '
                '{"@type": "WebPage", "datePublished": "2024-01-31"}]}'
            ),
            "",
            "2024-01-31",
        ),
        (
            linked(
                '{"@type": "Article", "comment": [{"@type": "Comment", "datePublished": "2001-01-01"}]}'
            ),
            "",
            None,
        ),
        (
            linked('{"datePublished": "2024-01-31",}'),
            "",
            "2024-01-31",
        ),
        ("", '<time datetime="2024-01-31">a</time><time datetime="2024-02-01">b</time>', None),
        (
            "",
            '<time datetime="2024-01-31">a</time><time datetime="2024-01-31">b</time>',
            "2024-01-31",
        ),
        (
            "",
            '<time datetime="2001-01-01">a</time><time pubdate datetime="2024-01-31">b</time>',
            "2024-01-31",
        ),
        ("", '<span itemprop="datePublished">31 January 2024</span>', "2024-01-31"),
    ],
)
def test_publication_date_of_a_page_is_found(head, body, date):
    from lxml import html

    tree = html.document_fromstring(f"<html><head>{head}</head><body>{LONG}{body}</body></html>")
    assert stated_date(tree, URL) == date


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<div id='root'></div><script>run()</script>",
        "<img src='a.png'>",
        "<noscript>Use JavaScript</noscript>",
    ],
)
def test_page_without_visible_text_is_reported(body):
    with notes_of_call() as notes:
        found = read_text(
            document(f"<html><head><title>App</title></head><body>{body}</body></html>".encode())
        )
    assert found["text"] == ""
    assert "shows no text" in " ".join(notes)


@pytest.mark.parametrize(
    ("href", "base", "url"),
    [
        ("HTTP://other.example/q", "", "HTTP://other.example/q"),
        ("q", "/folder/", "https://site.example/folder/q"),
        ("q", "http://[", "https://site.example/q"),
    ],
)
def test_link_is_read_whatever_its_spelling(href, base, url):
    page = f'<base href="{base}"><a href="{href}">t</a>'.encode()
    document = Document(url="https://site.example/", kind="text/html", charset=None, content=page)
    assert read_links(document) == [{"text": "t", "url": url}]
