"""Tests of trust in a folder: what is remembered, what ends it, and who may declare it."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from delf.environment import EnvFile, current_environ, source_of
from delf.errors import ConfigurationError, FolderNotTrustedError
from delf.trust.decisions import (
    Trust,
    all_trusted,
    digest_items,
    load_trusted,
    remember,
    revoke,
    store,
    whole_file_items,
)

ITEMS = {
    "delf.toml": {"agent.llm": '"gpt"', "agent.timeout": "5"},
    "tools.py": digest_items(b"x = 1"),
}


@pytest.fixture(autouse=True)
def nobody_vouches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DELF_TRUST")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "shop"
    found.mkdir()
    return found


def refused(folder: Path, items) -> FolderNotTrustedError:
    with pytest.raises(FolderNotTrustedError) as caught:
        Trust.here().check(folder, items)
    return caught.value


def trusts(folder: Path, items) -> bool:
    try:
        Trust.here().check(folder, items)
    except FolderNotTrustedError:
        return False
    return True


def changes(folder: Path, items) -> set[tuple[str, str, str]]:
    known = load_trusted(folder)
    assert known is not None
    return {(change.file, change.key, change.kind) for change in known.changes(items)}


class TestRemembering:
    def test_folder_stays_trusted_after_one_decision(self, folder):
        error = refused(folder, ITEMS)
        assert (error.folder, error.files, error.changed) == (folder, tuple(ITEMS), False)
        assert error.code == "ERR-TRUST-001"
        assert f"delf trust {folder}" in (error.hint or "")
        remember(folder, ITEMS)
        assert trusts(folder, ITEMS)

    def test_folder_without_settings_needs_no_trust(self, folder):
        assert Trust.here().check(folder, {}) is None
        assert load_trusted(folder) is None

    def test_each_change_since_the_decision_is_reported(self, folder):
        remember(folder, ITEMS)
        other = {
            "delf.toml": {"agent.llm": '"other"', "agent.record": '"x"'},
            "tools.py": digest_items(b"x = 2"),
            ".env": {"OPENAI_BASE_URL": "http://evil"},
        }
        assert changes(folder, other) == {
            ("delf.toml", "agent.llm", "changed"),
            ("delf.toml", "agent.record", "new"),
            ("delf.toml", "agent.timeout", "gone"),
            ("tools.py", "", "changed"),
            (".env", "", "new"),
        }
        error = refused(folder, other)
        assert (error.files, error.changed) == (("delf.toml", "tools.py", ".env"), True)

    def test_removed_trusted_file_is_ignored(self, folder):
        remember(folder, ITEMS)
        assert Trust.here().check(folder, {"delf.toml": ITEMS["delf.toml"]}) is None

    def test_change_in_one_file_keeps_trust_in_the_others(self, folder):
        remember(folder, ITEMS)
        remember(folder, {"delf.toml": {"agent.timeout": "6"}})
        assert trusts(folder, {**ITEMS, "delf.toml": {"agent.timeout": "6"}})
        assert refused(folder, ITEMS).files == ("delf.toml",)

    def test_trust_is_bound_to_the_real_path(self, folder, tmp_path):
        remember(folder, ITEMS)
        link = tmp_path / "link"
        link.symlink_to(folder)
        assert trusts(link, ITEMS)
        folder.rename(tmp_path / "moved")
        assert not trusts(tmp_path / "moved", ITEMS)
        (tmp_path / "other").mkdir()
        link.unlink()
        link.symlink_to(tmp_path / "other")
        assert not trusts(link, ITEMS)

    def test_trust_decisions_can_be_listed_and_revoked(self, folder, tmp_path):
        (tmp_path / "other").mkdir()
        for place in (folder, tmp_path / "other"):
            remember(place, ITEMS)
        assert [record.root for record in all_trusted()] == [tmp_path / "other", folder]
        assert revoke(folder)
        assert not revoke(folder)
        assert not trusts(folder, ITEMS)
        assert [record.root for record in all_trusted()] == [tmp_path / "other"]

    def test_trust_file_holds_only_salted_digests(self, folder, tmp_path):
        (tmp_path / "other").mkdir()
        items = {".env": {"KEY": "hunter2-hunter2"}}
        for place in (folder, tmp_path / "other"):
            remember(place, items)
        one, other = (path.read_text() for path in store().glob("*.json"))
        assert "hunter2" not in one + other
        assert json.loads(one)["digests"] != json.loads(other)["digests"]


class TestTheStore:
    def test_trust_file_is_readable_by_its_owner_only(self, folder):
        remember(folder, ITEMS)
        (file,) = store().glob("*.json")
        assert (store().stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)

    @pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
    def test_trust_record_writable_by_others_is_ignored(self, folder, mode):
        remember(folder, ITEMS)
        (file,) = store().glob("*.json")
        file.chmod(mode)
        assert not trusts(folder, ITEMS)
        assert all_trusted() == []

    def test_trust_folder_writable_by_others_is_ignored(self, folder):
        remember(folder, ITEMS)
        store().chmod(0o777)
        assert not trusts(folder, ITEMS)
        with pytest.raises(ConfigurationError, match="others can write") as caught:
            remember(folder, ITEMS)
        assert "chmod 700" in (caught.value.hint or "")

    def test_linked_trust_record_is_ignored(self, folder, tmp_path):
        remember(folder, ITEMS)
        (file,) = store().glob("*.json")
        file.rename(tmp_path / "elsewhere.json")
        file.symlink_to(tmp_path / "elsewhere.json")
        assert not trusts(folder, ITEMS)
        remember(folder, ITEMS)  # takes the place of the link
        assert not file.is_symlink()
        store().rename(tmp_path / "records")
        store().symlink_to(tmp_path / "records")
        assert not trusts(folder, ITEMS)

    def test_trust_record_copied_from_another_folder_is_ignored(self, folder, tmp_path):
        (tmp_path / "mine").mkdir()
        remember(tmp_path / "mine", ITEMS)
        remember(folder, {})
        mine, other = sorted(store().glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        other.write_bytes(mine.read_bytes())
        assert not trusts(folder, ITEMS)

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 2}'])
    def test_invalid_trust_record_is_ignored(self, folder, text):
        remember(folder, ITEMS)
        (file,) = store().glob("*.json")
        file.write_text(text)
        assert not trusts(folder, ITEMS)
        remember(folder, ITEMS)
        assert trusts(folder, ITEMS)

    @pytest.mark.timeout(10)
    def test_named_pipe_as_trust_record_does_not_block(self, folder):
        remember(folder, ITEMS)
        (file,) = store().glob("*.json")
        file.unlink()
        os.mkfifo(file, 0o600)
        assert not trusts(folder, ITEMS)

    @pytest.mark.parametrize("home", ["inside", "."])
    def test_folder_cannot_ship_its_own_trust_record(self, folder, monkeypatch, home):
        """A checkout may be the home folder, as in a container, and could then contain a record."""
        remember(folder, ITEMS)
        (record,) = store().glob("*.json")
        place = folder / home / "state"
        (place / "delf/trust").mkdir(parents=True, mode=0o700)
        (place / "delf/trust").chmod(0o700)
        brought = place / "delf/trust" / record.name
        brought.write_bytes(record.read_bytes())
        brought.chmod(0o600)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("XDG_STATE_HOME", str(place))
        assert not trusts(folder, ITEMS)
        with pytest.raises(ConfigurationError, match="cannot be kept") as caught:
            remember(folder, ITEMS)
        assert "DELF_TRUST=" in (caught.value.hint or "")


class TestVouching:
    def test_trust_variable_covers_a_folder_and_its_content(self, folder, tmp_path, monkeypatch):
        (folder / "below").mkdir()
        (tmp_path / "shops").mkdir()
        monkeypatch.setenv("DELF_TRUST", f"/nowhere{os.pathsep}{folder}")
        for place in (folder, folder / "below"):
            assert trusts(place, ITEMS)
        assert not trusts(tmp_path / "shops", ITEMS)
        assert not trusts(tmp_path, ITEMS)

    @pytest.mark.parametrize("name", [".", "shop", "~/shop"])
    def test_relative_trust_variable_is_refused(self, name, monkeypatch):
        monkeypatch.setenv("DELF_TRUST", name)
        with pytest.raises(ConfigurationError, match="DELF_TRUST"):
            Trust.here()

    def test_program_can_trust_its_own_folder(self, folder, tmp_path):
        Trust.here(folder).check(folder, ITEMS)
        with pytest.raises(FolderNotTrustedError):
            Trust.here(folder).check(tmp_path, ITEMS)

    def test_trust_that_a_program_gives_is_not_stored(self, folder):
        Trust.here(folder).keep(folder, ITEMS)
        assert load_trusted(folder) is None
        Trust.here().keep(folder, ITEMS)
        assert trusts(folder, ITEMS)


class TestFilesOfAFolder:
    def test_file_outside_the_folder_needs_no_trust(self, folder, tmp_path):
        path = folder / "workers" / "a.worker"
        path.parent.mkdir()
        path.write_bytes(b"a")
        assert whole_file_items(path, b"a", folder) == {"workers/a.worker": digest_items(b"a")}
        (tmp_path / "b.worker").write_bytes(b"b")
        assert whole_file_items(tmp_path / "b.worker", b"b", folder) == {}

    def test_links_are_resolved_before_trust_is_checked(self, folder, tmp_path):
        (tmp_path / "b.worker").write_bytes(b"b")
        (folder / "b.worker").symlink_to(tmp_path / "b.worker")
        with pytest.raises(ConfigurationError, match="link out of"):
            whole_file_items(folder / "b.worker", b"b", folder)
        link = tmp_path / "link"
        link.symlink_to(folder)
        (folder / "a.worker").write_bytes(b"a")
        assert whole_file_items(link / "a.worker", b"a", folder) == {"a.worker": digest_items(b"a")}


class TestTheEnvFile:
    """Tests of ``.env`` in the working directory, for an agent that is made in code."""

    @pytest.fixture(autouse=True)
    def here(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        (folder / ".env").write_text("PLANTED=evil\nOTHER=${PLANTED}-2\n")

    def test_untrusted_dotenv_is_ignored_with_a_warning(self, caplog):
        assert "PLANTED" not in current_environ()
        assert "is not trusted yet" in caplog.text
        assert "delf trust" in caplog.text

    def test_trusted_dotenv_is_ignored_after_a_change(self, folder):
        remember(folder, {".env": EnvFile.read(folder / ".env").assignments})
        assert current_environ()["OTHER"] == "evil-2"
        assert source_of(current_environ()["OTHER"]) == "project"
        (folder / ".env").write_text("# a comment\nPLANTED = evil\nOTHER=${PLANTED}-2\n")
        assert current_environ()["OTHER"] == "evil-2"
        (folder / ".env").write_text("PLANTED=worse\n")
        assert "PLANTED" not in current_environ()

    def test_dotenv_cannot_declare_itself_trusted(self, folder):
        (folder / ".env").write_text(f"DELF_TRUST={folder}\nPLANTED=evil\n")
        assert "PLANTED" not in current_environ()

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("case", ["pipe", "huge", "link", "spaces", "no text"])
    def test_unreadable_dotenv_is_ignored(self, case, folder, tmp_path):
        path = folder / ".env"
        path.unlink()
        if case == "pipe":
            os.mkfifo(path)
        elif case == "link":
            (tmp_path / "secret").write_text("PLANTED=hunter2\n")
            path.symlink_to(tmp_path / "secret")
        else:
            path.write_bytes(
                {
                    "huge": b"PLANTED=1\n" * 100_000,
                    "spaces": b"PLANTED=a" + b" " * 60_000 + b"b",
                    "no text": b"PLANTED=\xff",
                }[case]
            )
        assert "PLANTED" not in current_environ()


def test_files_that_are_trusted_at_the_same_time_are_all_kept(folder):
    items = {f"routines/{number}.py": digest_items(b"%d" % number) for number in range(24)}
    with ThreadPoolExecutor(len(items)) as pool:
        kept = [pool.submit(remember, folder, {name: items[name]}) for name in items]
    assert all(done.exception() is None for done in kept)
    assert trusts(folder, items)
