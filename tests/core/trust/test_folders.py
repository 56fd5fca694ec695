"""Tests of the search for a folder's files, and of reading them, if strangers own the folder."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from delf.errors import ConfigurationError
from delf.trust.folders import (
    UntrustedFolder,
    parse_toml,
    project_folder,
    read_file,
    values_by_path,
)


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """Return a subfolder of a repository that lies below a folder with ``delf.toml``."""
    (tmp_path / "delf.toml").write_text("")
    found = tmp_path / "repository" / "a" / "b"
    found.mkdir(parents=True)
    return found


@pytest.mark.parametrize("mark", [".git", ".hg", ".jj", ".svn"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_folder_search_stops_at_repository_root(deep, mark, kind):
    assert project_folder(deep) == deep.parents[2]
    place = deep.parents[1] / mark
    place.mkdir() if kind == "folder" else place.write_text("gitdir: elsewhere")
    assert project_folder(deep) == deep
    (deep.parents[1] / "delf.toml").write_text("")
    assert project_folder(deep) == deep.parents[1]


def test_home_folder_is_the_project_only_when_the_search_begins_there(deep, monkeypatch):
    monkeypatch.setenv("HOME", str(deep.parents[2]))
    assert project_folder(deep) == deep
    assert project_folder(deep.parents[2]) == deep.parents[2]
    (deep.parents[2] / ".git").mkdir()
    assert project_folder(deep) == deep


def test_invalid_home_variable_is_ignored(deep, monkeypatch):
    for home in ("", ".", "relative/home"):
        monkeypatch.setenv("HOME", home)
        assert project_folder(deep) == deep.parents[2]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs owners")
def test_folder_search_ends_at_folders_of_other_users(deep, monkeypatch):
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert project_folder(deep) == deep
    (deep.parents[1] / ".git").mkdir()
    (deep.parents[1] / "delf.toml").write_text("")
    assert project_folder(deep) == deep.parents[1]


def test_folder_is_found_by_its_real_path(deep, tmp_path):
    (deep.parents[1] / ".git").mkdir()
    link = tmp_path / "link"
    link.symlink_to(deep)
    assert project_folder(link) == deep


# -- reading --------------------------------------------------------------------------------------


def test_read_file_refuses_a_link_out_of_its_folder(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret").write_text("hunter2")
    (folder / "real").write_text("x")
    (folder / "inside").symlink_to("real")
    (folder / "outside").symlink_to("../secret")
    assert read_file(folder / "inside", folder) == b"x"
    with pytest.raises(ConfigurationError, match="is a link out of its folder") as caught:
        read_file(folder / "outside", folder)
    assert "hunter2" not in caught.value.describe()


@pytest.mark.timeout(10)
def test_read_file_ignores_pipes_devices_and_folders(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "device", "folder", "nothing"):
        assert read_file(tmp_path / name, tmp_path) is None


@pytest.mark.timeout(10)
def test_read_file_does_not_block_on_a_swapped_pipe(tmp_path, monkeypatch):
    path = tmp_path / "delf.toml"
    path.write_text("x")
    opens = os.open

    def swap(name, flags, *more):
        path.unlink()
        os.mkfifo(path)
        return opens(name, flags, *more)

    with monkeypatch.context() as patch:  # the removal of tmp_path calls os.open, too
        patch.setattr(os, "open", swap)
        assert read_file(path, tmp_path) is None


def test_unreadable_subfolder_is_named(tmp_path):
    (tmp_path / "skills").symlink_to("skills")  # a link to itself
    untrusted = UntrustedFolder(root=tmp_path, document={})
    for find in (untrusted.files_of, untrusted.folders_of):
        with pytest.raises(ConfigurationError, match=r"/skills cannot be read: "):
            find(tmp_path / "skills")
    assert untrusted.files_of(tmp_path / "missing") == []
    assert untrusted.resolve_path("skills") == tmp_path / "skills"


def test_file_in_an_unsearchable_folder_is_named(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(ConfigurationError, match=r"/a/b/worker\.md cannot be read: "):
        read_file(tmp_path / "a/b/worker.md", tmp_path)


def test_read_file_has_a_size_limit(tmp_path):
    path = tmp_path / "delf.toml"
    path.write_bytes(b"#" * 300_000)
    with pytest.raises(ConfigurationError, match=r"delf\.toml has more than 256 KiB"):
        read_file(path, tmp_path)


# -- TOML -----------------------------------------------------------------------------------------

DEEP = "a" + ".a" * 100_000
HOSTILE = {
    "one long key": f"{DEEP} = 1",
    "a long header": f"[{DEEP}]",
    "behind a text of several lines": f'x = {{ s = """\n""", {DEEP} = "" }}',
    "behind a separator of lines that is none of TOML": f'x = {{ s = "\u2028", {DEEP} = "\u2028" }}',
    "lists": "a = " + "[" * 100_000,
    "tables": "a = " + "{a = " * 50_000,
    "a number that is too long": "a = " + "1" * 100_000,
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("case", HOSTILE)
def test_toml_document_that_parses_slowly_is_refused(case):
    failed: list[Exception] = []

    def parse() -> None:
        try:
            parse_toml(HOSTILE[case])
        except ValueError as error:
            failed.append(error)

    thread = threading.Thread(target=parse, daemon=True)
    thread.start()
    thread.join(50)
    assert failed


def test_dots_in_toml_strings_create_no_keys():
    text = "word. " * 200
    assert parse_toml(f"a = '{text}'\nb = \"{text}\"") == {"a": text, "b": text}


def test_document_values_ignore_layout():
    one = parse_toml('[a.b]\nc = 1\nd = ["x", {y = 2}]\n[e]\n')
    other = parse_toml('# a comment\na = {b = {d = ["x", {y = 2}], c = 1}}\ne = {}')
    assert values_by_path(one) == values_by_path(other)
    assert set(values_by_path(one)) == {"a.b.c", "a.b.d", "e"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.b = 1", '"a.b" = 1'),
        ('a."b.c" = 1', "a.b.c = 1"),
        ("a = 1", "a = '1'"),
        ("a = 1", "a = 1.0"),
        ("a = true", "a = 'true'"),
        ("a = 2020-01-01", "a = '2020-01-01'"),
        ("a = {}", "a = []"),
        ("a = [1, 2]", "a = [2, 1]"),
    ],
)
def test_different_documents_have_different_digests(one, other):
    assert values_by_path(parse_toml(one)) != values_by_path(parse_toml(other))
