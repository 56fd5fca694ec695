"""Small documents for tests."""

from __future__ import annotations

import io
import zipfile

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf_of(*pages: str) -> bytes:
    """A PDF with a line of text on each page; an empty one has no text."""
    numbers = [3 + 2 * number for number in range(len(pages))]
    kids = " ".join(f"{number} 0 R" for number in numbers)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(),
    ]
    for number, text in zip(numbers, pages, strict=True):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b""
        objects += [
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R"
            b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>"
            % (number + 1),
            b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        ]
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    places: list[int] = []
    for number, item in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj%s\nendobj\n" % (number, item))
    start, size = out.tell(), len(objects) + 1
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % size)
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (size, start))
    return out.getvalue()


def docx_of(body: str) -> bytes:
    """A .docx with a body of WordprocessingML, whose elements have no prefix."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        text = f'<document xmlns="{_WORD}"><body>{body}</body></document>'
        archive.writestr("word/document.xml", text)
    return made.getvalue()
