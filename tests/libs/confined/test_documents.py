"""Tests that empty, encrypted and unusual documents are reported."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject, StreamObject

from delf.errors import ToolExecutionError
from delf.notes import notes_of_call
from delf_confined.documents import docx_lines, pdf_pages
from support.documents import pdf_of

USUAL = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"


def pdf(texts: list[str], password: str = "", title: Any = None) -> bytes:
    """Make a PDF with a page for each text; an empty text makes a scanned page."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in texts:
        page = writer.add_blank_page(200, 200)
        content = StreamObject()
        content.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        page[NameObject("/Contents")] = content
    if title is not None:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_scanned_pdf_pages_are_reported() -> None:
    with notes_of_call() as notes:
        assert pdf_pages(io.BytesIO(pdf(["", ""])), "a.pdf").texts == ["", ""]
    assert next(iter(notes)).startswith("a.pdf: 2 of 2 pages hold no text, as scanned pages do")
    with notes_of_call() as notes:
        assert pdf_pages(io.BytesIO(pdf(["Hello", ""])), "a.pdf").texts == ["Hello", ""]
    assert next(iter(notes)).startswith("a.pdf: 1 of 2")
    with notes_of_call() as notes:
        assert pdf_pages(io.BytesIO(pdf(["Hello"])), "a.pdf").texts == ["Hello"]
    assert not notes


_FORM = (
    b"<</Subtype/Widget/FT/Tx/T(age)/V(42)>>",
    b"<</Subtype/Widget/FT/Tx/T(empty)>>",
    b"<</Subtype/Widget/T(street)/Parent<</FT/Tx/T(home)/V(Main St.)>>>>",
    b"<</Subtype/Widget/FT/Btn/T(agree)/AS/Yes>>",
    b"<</Subtype/Widget/FT/Btn/T(not)/AS/Off>>",
    b"<</Subtype/Widget/FT/Ch/T(kinds)/V[(a)(b)]>>",
    b"<</Subtype/FreeText/Contents(written over)>>",
    b"<</Subtype/Text/Contents(a remark)>>",
)


@pytest.mark.parametrize("text", ["Hello", ""])
def test_pdf_form_fields_are_read(text: str) -> None:
    content = pdf_of(text).replace(b"/MediaBox", b"/Annots[%s]/MediaBox" % b"".join(_FORM))
    with notes_of_call() as notes:
        (found,) = pdf_pages(io.BytesIO(content), "a.pdf").texts
    values = ["age: 42", "home.street: Main St.", "agree: Yes", "kinds: a, b", "written over"]
    assert found.split("\n") == [*filter(None, [text]), *values]
    assert list(notes) == ["a.pdf: values of form fields stand below the text of their page"]


def test_pdf_form_field_with_a_missing_parent_is_read() -> None:
    fields = b"<</Subtype/Widget/FT/Tx/T(age)/V(42)/Parent 99 0 R>>"
    content = pdf_of("Hello").replace(b"/MediaBox", b"/Annots[%s]/MediaBox" % fields)
    assert pdf_pages(io.BytesIO(content), "a.pdf").texts == ["Hello\nage: 42"]


@pytest.mark.parametrize("declared", [True, False])
def test_pdf_font_encoding_is_applied(declared: bool) -> None:
    writer = PdfWriter(PdfReader(io.BytesIO(pdf_of("a page"))))
    program = DecodedStreamObject()
    program.set_data(b"/Encoding 256 array\ndup 97 /b put\nreadonly def\neexec\n")
    descriptor = DictionaryObject({NameObject("/FontFile"): writer._add_object(program)})  # noqa: SLF001 - there is no other way
    font = cast("Any", writer.pages[0])["/Resources"]["/Font"]["/F1"]
    font[NameObject("/FontDescriptor")] = descriptor
    if declared:
        font[NameObject("/Encoding")] = NameObject("/WinAnsiEncoding")
    made = io.BytesIO()
    writer.write(made)
    assert pdf_pages(made, "a.pdf").texts == ["a page" if declared else "b pbge"]


@pytest.mark.parametrize(
    ("text", "font"),
    [
        (r"Unit 15-173-\025", b"/Type1/BaseFont/Helvetica"),
        ("Hello", b"/Type0/Encoding/EUC-H/BaseFont/x/DescendantFonts[<</Subtype/CIDFontType0>>]"),
    ],
    ids=["a sign of no script", "an unknown encoding"],
)
def test_pdf_fonts_that_do_not_map_to_letters_are_reported(text: str, font: bytes) -> None:
    content = pdf_of("Plain", text).replace(b"/Type1/BaseFont/Helvetica", font)
    with notes_of_call() as notes:
        assert pdf_pages(io.BytesIO(content), "a.pdf").total == 2
    assert "do not say which letters they draw" in " ".join(notes)


def test_encrypted_pdf_is_reported() -> None:
    with pytest.raises(ToolExecutionError, match=r"a\.pdf is a PDF document with a password"):
        pdf_pages(io.BytesIO(pdf(["Hello"], password="secret")), "a.pdf")


def test_broken_pdf_title_does_not_hide_the_text(monkeypatch) -> None:
    monkeypatch.setattr(PdfReader, "metadata", property(lambda _: 1 / 0))
    assert pdf_pages(io.BytesIO(pdf(["Hello"])), "a.pdf").texts == ["Hello"]


def test_damaged_pdf_page_does_not_hide_other_pages(monkeypatch) -> None:
    read = PageObject.extract_text

    def extract(page: Any, *given: Any, **named: Any) -> str:
        text = read(page, *given, **named)
        if text == "odd":
            raise KeyError(text)
        return text

    monkeypatch.setattr(PageObject, "extract_text", extract)
    with notes_of_call() as notes:
        found = pdf_pages(io.BytesIO(pdf(["Hello", "odd", "Bye"])), "a.pdf")
    assert found.texts == ["Hello", "", "Bye"]
    assert list(notes) == ["a.pdf: the texts of damaged pages are empty: 2"]
    with pytest.raises(ToolExecutionError, match="no page of it can be read"):
        pdf_pages(io.BytesIO(pdf(["odd"])), "a.pdf")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/C50\n/C72/C6f\n/C70", True),
        ("/g0035/g0037/g003a", True),
        ("(cid:12)(cid:7)", True),
        ("\ue001\ue002 \ue003", True),
        ("See /usr/bin and /C12 for more", False),
        ("Rotated text", False),
    ],
)
def test_unreadable_pdf_glyph_names_are_reported(monkeypatch, text, shown) -> None:
    monkeypatch.setattr(PageObject, "extract_text", lambda *_, **__: text)
    with notes_of_call() as notes:
        pdf_pages(io.BytesIO(pdf(["x"])), "a.pdf")
    assert (
        any("the fonts of pages 1 do not say which letters they draw" in note for note in notes)
        is shown
    )


def docx(path: Path, namespace: str, body: str, name: str = "word/document.xml") -> str:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("x")
        info.filename = name
        archive.writestr(
            "_rels/.rels",
            f'<Relationships><Relationship Target="word/document.xml" Type="{namespace}"/></Relationships>',
        )
        archive.writestr(
            info, f'<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>'
        )
    return str(path)


@pytest.mark.parametrize("namespace", [USUAL, STRICT])
@pytest.mark.parametrize(
    "name", ["word/document.xml", "Word/Document.xml", "word\\document.xml", "/word/document.xml"]
)
def test_docx_text_is_found_under_every_part_name(tmp_path, namespace, name) -> None:
    path = docx(tmp_path / "a.docx", namespace, "<w:p><w:r><w:t>Hello</w:t></w:r></w:p>", name)
    assert list(docx_lines(path, "a.docx")) == ["Hello"]


def test_empty_and_encrypted_docx_are_reported(tmp_path) -> None:
    with notes_of_call() as notes:
        assert not "".join(docx_lines(docx(tmp_path / "a.docx", USUAL, "<w:p/>"), "a.docx"))
    assert list(notes) == ["a.docx holds no text"]
    (tmp_path / "b.docx").write_bytes(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le")
    )
    with pytest.raises(ToolExecutionError, match="has a password"):
        list(docx_lines(str(tmp_path / "b.docx"), "b.docx"))


CHOICE = "http://schemas.openxmlformats.org/markup-compatibility/2006"


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


BOX = f"<w:txbxContent><w:p>{run('in a box')}</w:p></w:txbxContent>"
ALTERNATIVES = (
    f'<w:r><c:AlternateContent xmlns:c="{CHOICE}"><c:Choice>{BOX}</c:Choice>'
    f"<c:Fallback>{BOX}</c:Fallback></c:AlternateContent></w:r>"
)


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            f"<w:p>{run('before')}{ALTERNATIVES}</w:p>",
            ["before", "in a box"],
        ),
        (f"<w:p>{run('26')}<w:r><w:noBreakHyphen/></w:r>{run('jährig')}</w:p>", ["26-jährig"]),
        (f"<w:p><w:moveFrom>{run('x')}</w:moveFrom><w:moveTo>{run('x')}</w:moveTo></w:p>", ["x"]),
        (f"<w:p><w:del><w:r><w:delText>x</w:delText></w:r></w:del>{run('y')}</w:p>", ["y"]),
        ('<w:p><w:r><w:sym w:font="Symbol" w:char="00AE"/></w:r></w:p>', ["®"]),
        (f"<w:p>{run('a')}<w:r><w:tab/></w:r>{run('b')}</w:p>", ["a\tb"]),
        (f"<w:sdt><w:sdtContent><w:p>{run('x')}</w:p></w:sdtContent></w:sdt>", ["x"]),
    ],
)
def test_docx_text_is_read_once(tmp_path, body, lines) -> None:
    path = docx(tmp_path / "a.docx", USUAL, body)
    assert list(docx_lines(path, "a.docx")) == lines


def test_docx_footnotes_are_reported_as_missing(tmp_path) -> None:
    path = tmp_path / "a.docx"
    relation = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="rId1" Target="/word/document2.xml" Type="http://schemas.'
        'openxmlformats.org/officeDocument/2006/relationships/officeDocument"/></Relationships>'
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("_rels/.rels", relation)
        text = f'<w:document xmlns:w="{USUAL}"><w:body><w:p>{run("x")}</w:p></w:body></w:document>'
        archive.writestr("word/document2.xml", text)
        archive.writestr("word/footnotes.xml", f'<w:x xmlns:w="{USUAL}">{run("below")}</w:x>')
    with notes_of_call() as notes:
        assert list(docx_lines(str(path), "a.docx")) == ["x"]
    assert list(notes) == ["a.docx: its footnotes are not in the text"]
