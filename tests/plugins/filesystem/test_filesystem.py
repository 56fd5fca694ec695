"""Actions of scripts on files, and the messages of failures."""

import os
import stat
import sys
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    DelfError,
    OptionalDependencyError,
    ToolExecutionError,
    ToolRefusedError,
)
from delf.notes import notes_of_call
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall
from delf.tools.action import actions_of
from delf.tools.permissions import is_allowed
from delf_filesystem import Filesystem, search
from delf_filesystem.documents import convert
from delf_filesystem.roots import Place
from support.documents import pdf_of


def test_file_is_read_whole_or_by_lines(files: Filesystem) -> None:
    assert files.read_file("notes/plan.md") == "one\ntwo\nthree\n"
    assert files.read_file("notes/plan.md", start=2, lines=1) == "two\n"
    assert files.read_file("notes/plan.md", start=3) == "three\n"
    assert files.read_file("notes/plan.md", start=9) == ""
    assert files.read_bytes("notes/plan.md", offset=4, length=3) == b"two"


def test_large_file_is_read_only_in_parts(files: Filesystem, notes: Path) -> None:
    (notes / "big.txt").write_text("0123456789\n" * 1_000_001)
    with pytest.raises(DelfError, match=r"file too large. Maximum: 10000000 bytes"):
        files.read_file("notes/big.txt")
    with pytest.raises(DelfError, match="fewer lines"):
        files.read_file("notes/big.txt", start=2)
    assert files.read_file("notes/big.txt", start=1_000_000) == "0123456789\n" * 2
    assert files.read_bytes("notes/big.txt", offset=11_000_000) == b"0123456789\n"


def test_files_are_listed_by_pattern_in_name_order(files: Filesystem) -> None:
    assert [f["path"] for f in files.list_files()] == ["notes/deep/er/list.txt", "notes/plan.md"]
    assert [f["path"] for f in files.list_files("notes", "*.md")] == ["notes/plan.md"]
    assert [f["path"] for f in files.list_files("notes/deep", "er/*.txt")] == [
        "notes/deep/er/list.txt"
    ]
    assert files.list_files("notes", "er/*.txt") == []
    assert [f["size"] for f in files.list_files("notes", "**/er/*")] == [15]
    with pytest.raises(DelfError, match="more than 1 files"):
        files.list_files(limit=1)


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("notes/*.md", ["notes/plan.md"]),
        ("notes/*", ["notes/plan.md"]),
        ("notes/**/*.txt", ["notes/deep/er/list.txt"]),
        ("notes/deep/**", ["notes/deep/er/list.txt"]),
        ("deep/er/*", ["notes/deep/er/list.txt"]),
        ("other/*", []),
    ],
)
def test_pattern_may_begin_with_a_root_as_listed_paths_do(
    files: Filesystem, pattern: str, paths: list[str]
) -> None:
    assert [f["path"] for f in files.list_files(pattern=pattern)] == paths


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*", "a.md", True),
        ("*.md", "x/y/a.md", True),
        ("x/*.md", "x/y/a.md", False),
        ("x/**/*.md", "x/y/z/a.md", True),
        ("x/**/*.md", "x/a.md", True),
        ("**/y/**", "x/y/z/a", True),
        ("**/y/**", "x/z/a", False),
        ("**/b/**/b/c", "b/x/b/b/c", True),
        ("[ab].txt", "b.txt", True),
        ("a?c", "abc", True),
        ("**", "any/thing", True),
        ("./*.md", "a.md", True),
        ("./*.md", "x/a.md", False),
        ("./x/**", "x/y/a.md", True),
        (".", "a.md", False),
        ("", "a.md", False),
    ],
)
def test_glob_matches_paths(pattern: str, path: str, fits: bool) -> None:
    from delf_filesystem.search import Glob

    assert Glob(pattern).matches(path.split("/")) is fits


def test_hostile_glob_pattern_is_matched_quickly(files: Filesystem, notes: Path) -> None:
    (notes / ("a" * 200)).write_text("")
    assert files.list_files("notes", "*a" * 100 + "b") == []
    assert files.list_files("notes", "**/" * 150 + "b") == []


def test_find_returns_matching_lines(files: Filesystem, notes: Path) -> None:
    (notes / "data.bin").write_bytes(b"\0two")
    assert files.find("two") == [{"path": "notes/plan.md", "line": 2, "text": "two"}]
    found = files.find("two", ignore_case=True)
    assert [(m["path"], m["line"]) for m in found] == [
        ("notes/deep/er/list.txt", 2),
        ("notes/plan.md", 2),
    ]
    assert len(files.find("e", limit=2)) == 2
    assert files.find(".*") == []


def test_unreadable_file_does_not_end_a_search(
    files: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = search.reading

    def refuse_first(place: Place) -> AbstractContextManager[BinaryIO]:
        if str(place) == "notes/deep/er/list.txt":
            raise ToolExecutionError(f"cannot read {str(place)!r}: the system does not permit it")
        return read(place)

    monkeypatch.setattr(search, "reading", refuse_first)
    with notes_of_call() as notes:
        found = files.find("e")
    assert {match["path"] for match in found} == {"notes/plan.md"}
    assert list(notes) == ["cannot read 'notes/deep/er/list.txt': the system does not permit it"]
    for spelling in ("notes/deep/er/list.txt", "notes//deep/./er/list.txt"):
        with pytest.raises(ToolExecutionError, match="does not permit"):
            files.find("e", spelling)


def test_search_that_can_read_no_file_fails(
    files: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: Place) -> AbstractContextManager[BinaryIO]:
        raise ToolExecutionError(f"the root {place.name!r} cannot be opened")

    monkeypatch.setattr(search, "reading", refuse)
    with pytest.raises(ToolExecutionError, match="the root 'notes' cannot be opened"):
        files.find("e")


def test_written_file_keeps_its_mode(files: Filesystem, out: Path) -> None:
    assert files.write_file("out/new/report.md", "Grüße") == 7
    assert (out / "new/report.md").read_text() == "Grüße"
    (out / "new/report.md").chmod(0o640)
    files.write_file("out/new/report.md", b"\xff")
    assert (out / "new/report.md").read_bytes() == b"\xff"
    assert stat.S_IMODE((out / "new/report.md").stat().st_mode) == 0o640
    assert sorted(os.listdir(out / "new")) == ["report.md"]


def test_failed_write_leaves_the_file_unchanged(files: Filesystem, out: Path) -> None:
    (out / "a.txt").write_text("before")
    with pytest.raises(DelfError, match="too large"):
        files.write_file("out/a.txt", "x" * 10_000_001)
    assert (out / "a.txt").read_text() == "before"
    assert os.listdir(out) == ["a.txt"]


@pytest.mark.timeout(20)
def test_line_end_is_added_to_many_occurrences_quickly(files: Filesystem, out: Path) -> None:
    (out / "a.txt").write_bytes(b"a;" * 200_000 + b"\r\n")
    assert files.replace(";", "\n", "out") == {"out/a.txt": 200_000}
    assert (out / "a.txt").read_bytes() == b"a\r\n" * 200_000 + b"\r\n"


def test_edit_keeps_line_endings_and_byte_order_mark(files: Filesystem, out: Path) -> None:
    path = out / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\nthree\r\n")
    files.edit_file("out/a.txt", "one\ntwo", "1\n2")
    files.edit_file("out/a.txt", "three", "3\n4")
    assert path.read_bytes() == b"1\r\n2\r\n3\r\n4\r\n"
    assert files.replace("2\n3", "x\ny", "out") == {"out/a.txt": 1}
    assert path.read_bytes() == b"1\r\nx\r\ny\r\n4\r\n"
    path.write_bytes(b"a\r\nb\nc\n")
    files.edit_file("out/a.txt", "b\nc", "d\ne")
    assert path.read_bytes() == b"a\r\nd\ne\n"
    path.write_bytes(b"a\r\nb\nc\r\nd\n")
    files.edit_file("out/a.txt", "a\nb", "x\ny\nz")
    assert path.read_bytes() == b"x\r\ny\r\nz\nc\r\nd\n"
    assert files.replace("z\nc", "1\n2", "out") == {"out/a.txt": 1}
    assert path.read_bytes() == b"x\r\ny\r\n1\n2\r\nd\n"
    path.write_bytes(b"\xef\xbb\xbfold")
    files.write_file("out/a.txt", "new")
    assert path.read_bytes() == b"\xef\xbb\xbfnew"
    files.write_file("out/a.txt", "\ufeffnewer")
    assert path.read_bytes() == b"\xef\xbb\xbfnewer"
    files.write_file("out/a.txt", b"bytes")
    assert path.read_bytes() == b"bytes"


@pytest.mark.parametrize(
    ("encoding", "old", "new", "changed"),
    [
        ("latin-1", "x", "y", "Größe y"),
        ("latin-1", "x", "é", None),
        ("latin-1", "Größe", "y", None),
        ("utf-16", "x", "y", None),
        ("utf-8", "Größe", "é", "é x"),
    ],
)
def test_edit_keeps_the_encoding_of_a_file(
    files: Filesystem, out: Path, encoding: str, old: str, new: str, changed: str | None
) -> None:
    path = out / "a.txt"
    path.write_bytes("Größe x".encode(encoding))
    if changed is None:
        with pytest.raises(DelfError, match=r"'out/a\.txt': it is not UTF-8 text"):
            files.edit_file("out/a.txt", old, new)
    else:
        files.edit_file("out/a.txt", old, new)
    assert path.read_bytes() == (changed or "Größe x").encode(encoding)


def test_edit_requires_exactly_one_match(files: Filesystem, out: Path) -> None:
    (out / "a.txt").write_text("a b a")
    files.edit_file("out/a.txt", "b", "c")
    assert (out / "a.txt").read_text() == "a c a"
    with pytest.raises(DelfError, match="more than once"):
        files.edit_file("out/a.txt", "a", "x")
    with pytest.raises(DelfError, match="text not found in file"):
        files.edit_file("out/a.txt", "zzz", "x")
    assert (out / "a.txt").read_text() == "a c a"


def test_edited_text_may_begin_with_a_line_break(files: Filesystem, out: Path) -> None:
    path = out / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\n")
    files.edit_file("out/a.txt", "\ntwo", "\n2")
    assert path.read_bytes() == b"one\r\n2\r\n"
    path.write_bytes(b"\r\n\r\n\r\n")
    with pytest.raises(DelfError, match="more than once"):
        files.edit_file("out/a.txt", "\n\n", "\n")


def test_replace_changes_every_file_with_the_text(files: Filesystem, out: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (out / name).write_text("lamp lamp")
    (out / "c.txt").write_text("desk")
    assert files.replace("lamp", "light") == {"out/a.txt": 2, "out/b.txt": 2}
    assert (out / "a.txt").read_text() == "light light"
    with pytest.raises(DelfError, match="read-only"):
        files.replace("two", "three", path="notes")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("plan.md", "a path begins with the name of a root"),
        ("note/plan.md", "did you mean 'notes'"),
        ("notes/nothing.md", "does not exist"),
        ("notes/deep", "it is a folder"),
        ("notes/plan.md/x", "a part of the path is a file"),
        ("notes/.env", "names that begin with a dot are hidden"),
    ],
)
def test_path_error_states_what_is_allowed(files: Filesystem, path: str, message: str) -> None:
    with pytest.raises(DelfError, match=message):
        files.read_file(path)


def test_hidden_files_and_other_suffixes_are_inaccessible(notes: Path) -> None:
    (notes / ".env").write_text("KEY=1")
    files = Filesystem(roots={"notes": {"root": notes, "suffixes": ["md"], "mode": "rw"}})
    assert [f["path"] for f in files.list_files()] == ["notes/plan.md"]
    with pytest.raises(DelfError, match=r"suffix not allowed. Allowed in notes: .md"):
        files.read_file("notes/deep/er/list.txt")
    with pytest.raises(DelfError, match="suffix not allowed"):
        files.write_file("notes/run.sh", "")
    open_root = Filesystem(roots={"notes": {"root": notes, "hidden": True}})
    assert open_root.read_file("notes/.env") == "KEY=1"


def test_invalid_roots_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConnectionConfigurationError, match="at least one folder"):
        Filesystem(roots={})
    with pytest.raises(ConnectionConfigurationError, match="not a name of a root"):
        Filesystem(roots={"a/b": "."})
    with pytest.raises(ConnectionConfigurationError, match="mode"):
        Filesystem(roots={"a": {"root": ".", "mode": "w"}})
    gone = tmp_path / "gone"
    gone.mkdir()
    files = Filesystem(roots={"a": gone})
    gone.rmdir()
    with pytest.raises(DelfError, match="the root 'a' cannot be opened"):
        files.read_file("a/b")


async def test_prompt_names_the_roots(files: Filesystem) -> None:
    message = await files.context("anything")
    assert message is not None
    assert "notes/ (read only)" in message
    assert "out/ (read and write)" in message


async def test_prompt_shows_only_allowed_actions(notes: Path) -> None:
    files = Filesystem(roots={"notes": {"root": notes, "mode": "rw"}}, allow=["read_file"])
    allowed = [a.name for a in actions_of(Filesystem, files, "disk") if is_allowed(files.allow, a)]
    assert allowed == ["read_file"]
    assert "notes/ (read only)" in str(await files.context("anything"))
    assert files.readable_file("notes/plan.md") is not None
    assert files.readable_file("./notes/plan.md") is not None
    assert files.readable_file("plan.md") is None
    with pytest.raises(ToolRefusedError, match="a path begins with the name of a root"):
        files.readable_file("/notes/plan.md")
    whole = Filesystem(roots={"notes": notes}, allow=["reading"])
    allowed = [a.name for a in actions_of(Filesystem, whole, "disk") if is_allowed(whole.allow, a)]
    assert allowed == ["read_file", "read_document", "read_bytes"]
    lists = Filesystem(roots={"notes": notes}, allow=["list_files"])
    with pytest.raises(ToolRefusedError, match="may not read files"):
        lists.readable_file("notes/plan.md")


@pytest.mark.slow
async def test_documents_are_read_as_markdown(files: Filesystem, notes: Path) -> None:
    (notes / "page.html").write_text("<html><body><h1>Lamps</h1><p>Two.</p></body></html>")
    text = await files.read_document("notes/page.html")
    assert text.strip() == "# Lamps\n\nTwo."
    await files.aclose()


@pytest.mark.parametrize(
    ("suffix", "declared", "encoding", "noted"),
    [
        (".html", "", "utf-8", ""),
        (".html", "<meta charset='iso-8859-1'>", "cp1252", ""),
        (".html", "<meta charset='iso-8859-1'>", "utf-8", ""),
        (".html", "", "cp1252", "Windows-1252"),
        (".htm", "", "utf-16", ""),
        (".txt", "", "cp1252", "Windows-1252"),
    ],
)
def test_document_encoding_is_detected(
    suffix: str, declared: str, encoding: str, noted: str
) -> None:
    words = "Grüße für 5 € aus Köln"
    with notes_of_call() as notes:
        found = convert(f"{declared}<p>{words}</p>".encode(encoding), "a", suffix)
    assert words in found
    assert noted in " ".join(notes)
    assert bool(notes) == bool(noted)


def test_separated_text_is_not_converted_to_a_table() -> None:
    assert convert(b"a;b\nx,y;1,5\n", "a", ".csv") == "a;b\nx,y;1,5\n"


def test_scanned_document_pages_are_reported() -> None:
    for pages, expected in {
        ("Lamps", ""): ["1 of 2"],
        ("Lamps", "", "Desks"): ["1 of 3"],
        ("", ""): ["2 of 2"],
        ("Lamps", "Desks"): [],
    }.items():
        with notes_of_call() as notes:
            convert(pdf_of(*pages), "a.pdf", ".pdf")
        assert [note.split(" pages hold no text")[0] for note in notes] == [
            f"a.pdf: {share}" for share in expected
        ]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.soak
async def test_document_bomb_is_an_error(files: Filesystem, notes: Path) -> None:
    """A document of 300 kB took gigabytes; the next document must be readable as before."""
    cell = "<w:p><w:r><w:t>x</w:t></w:r></w:p>"
    with zipfile.ZipFile(notes / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("[Content_Types].xml", _TYPES)
        parts.writestr("_rels/.rels", _RELATIONS)
        parts.writestr("word/document.xml", f"{_HEAD}{cell * 3_000_000}</w:body></w:document>")
    (notes / "page.html").write_text("<p>Two.</p>")
    assert (await files.read_document("notes/page.html")).strip() == "Two."
    with pytest.raises(ToolExecutionError, match=r"bomb\.docx"):
        await files.read_document("notes/bomb.docx")
    assert (await files.read_document("notes/page.html")).strip() == "Two."
    await files.aclose()


_WORD = "http://schemas.openxmlformats.org"
_TYPES = (
    f'<Types xmlns="{_WORD}/package/2006/content-types"><Default Extension="rels" ContentType='
    '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName='
    '"/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    'wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    f'<Relationships xmlns="{_WORD}/package/2006/relationships"><Relationship Id="r" Type='
    f'"{_WORD}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>'
    "</Relationships>"
)
_HEAD = f'<w:document xmlns:w="{_WORD}/wordprocessingml/2006/main"><w:body>'


async def test_missing_document_package_is_reported(
    files: Filesystem, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "markitdown", None)
    (notes / "page.html").write_text("<p>Two.</p>")
    with pytest.raises(OptionalDependencyError) as missing:
        await files.read_document("notes/page.html")
    assert "delf-plugin-filesystem[documents]" in str(missing.value.hint)


async def test_write_approval_shows_a_diff(notes: Path) -> None:
    disk = Filesystem(roots={"notes": {"root": notes, "mode": "rw"}})
    edit = {"path": "notes/plan.md", "old_text": "two", "new_text": "2"}
    verdict = await disk.check(ProposedCall(action="edit_file", arguments=edit))
    assert isinstance(verdict, NeedsApproval)
    assert verdict.reason == "notes asks before each write"
    assert verdict.preview is not None
    assert verdict.preview.splitlines()[-4:] == [" one", "-two", "+2", " three"]
    new = {"path": "notes/new.md", "content": "x\n"}
    verdict = await disk.check(ProposedCall(action="write_file", arguments=new))
    assert isinstance(verdict, NeedsApproval)
    assert str(verdict.preview).startswith("--- /dev/null\n+++ notes/new.md")
    (notes / "other name").hardlink_to(notes / "plan.md")  # the file is not read any more
    hidden = {"path": "notes/plan.md", "content": "x\n"}
    verdict = await disk.check(ProposedCall(action="write_file", arguments=hidden))
    assert isinstance(verdict, NeedsApproval)
    assert str(verdict.preview).startswith("--- notes/plan.md, a file that cannot be read\n")
    (notes / "other name").unlink()
    read = await disk.check(ProposedCall(action="read_file", arguments={"path": "notes/plan.md"}))
    assert read == Allowed()


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (None, b"", "notes/a.md: new → 0 bytes"),
        (b"a\nb", b"a\nb\n", "notes/a.md: 3 bytes → 4 bytes"),
        (b"a\r\nb\n", b"a\nb\n", "-a\r\n+a\n"),
        (b"a\xe2\x80\xa8b\n", b"a\nb\n", "-a\u2028b\n+a\n+b"),
        (b"a\n", b"a\n", "nothing would change"),
        (None, b"a\n" * 200_000, "notes/a.md: new → 400000 bytes"),
    ],
    ids=["empty", "last line end", "line ends", "separator", "unchanged", "large"],
)
async def test_write_approval_shows_changes_of_line_ends_and_of_whole_files(
    notes: Path, before: bytes | None, after: bytes, shown: str
) -> None:
    if before is not None:
        (notes / "a.md").write_bytes(before)
    disk = Filesystem(roots={"notes": {"root": notes, "mode": "rw"}})
    write = {"path": "notes/a.md", "content": after}
    verdict = await disk.check(ProposedCall(action="write_file", arguments=write))
    assert isinstance(verdict, NeedsApproval)
    assert shown in str(verdict.preview)


@pytest.mark.parametrize("content", [b"x", b"line\n" * 20], ids=["short", "first half"])
async def test_write_approval_shows_the_whole_size_of_a_file_above_the_limit(
    notes: Path, content: bytes
) -> None:
    old = notes / "a.md"
    old.write_bytes(b"line\n" * 40)
    disk = Filesystem(roots={"notes": {"root": notes, "mode": "rw", "max_file_bytes": 100}})
    write = {"path": "notes/a.md", "content": content}
    verdict = await disk.check(ProposedCall(action="write_file", arguments=write))
    assert isinstance(verdict, NeedsApproval)
    assert verdict.preview == f"notes/a.md: 200 bytes → {len(content)} bytes"
    old.write_bytes(b"line\n" * 39 + b"last\n")  # a change after the first 100 bytes
    os.utime(old, (1, 1))  # as if the change came at another time
    later = await disk.check(ProposedCall(action="write_file", arguments=write))
    assert isinstance(later, NeedsApproval)
    assert later.basis != verdict.basis


def test_root_that_is_not_a_folder_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(
        ConnectionFileNotFoundError, match="'w' of filesystem is not a folder"
    ) as message:
        Filesystem(roots={"w": f"{tmp_path}:rw"})
    assert 'mode = "rw"' in (message.value.hint or "")


def test_create_option_makes_a_writable_root_folder(tmp_path: Path) -> None:
    def root(name: str, **more: str) -> dict[str, object]:
        return {"root": str(tmp_path / name), "create": True, **more}

    Filesystem(roots={"w": root("a/b", mode="rw")})
    assert (tmp_path / "a/b").is_dir()
    with pytest.raises(ConnectionFileNotFoundError, match="is not a folder"):
        Filesystem(roots={"r": root("c")})
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConnectionFileNotFoundError, match="is not a folder"):
        Filesystem(roots={"w": root("file", mode="rw")})
