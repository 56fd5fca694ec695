"""The user's folders, also of a user without a home folder."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from delf.errors import ConfigurationError
from delf.machine.folders import expand_home, user_folder
from delf.machine.kept_keys import own_variables

VARIABLES = {
    "cache": "XDG_CACHE_HOME",
    "config": "XDG_CONFIG_HOME",
    "data": "XDG_DATA_HOME",
    "state": "XDG_STATE_HOME",
}


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user as in a container that runs with any user id: no HOME, no entry in /etc/passwd."""

    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", *VARIABLES.values()):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("kind", VARIABLES)
def test_user_folder_follows_its_variable(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[kind], str(tmp_path))
    assert user_folder(kind) == tmp_path / "delf"  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", VARIABLES)
def test_missing_home_folder_is_reported(
    kind: str, no_home: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=f"no home folder for delf's {kind} files") as no:
        user_folder(kind)  # type: ignore[arg-type]
    assert VARIABLES[kind] in (no.value.hint or "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_folder(kind).is_relative_to(tmp_path)  # type: ignore[arg-type]


def test_process_variables_are_read_without_a_home_folder(
    no_home: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    assert own_variables()["OPENAI_API_KEY"] == "sk-1"


def test_expand_home_keeps_paths_of_unknown_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expand_home("~/notes.txt") == tmp_path / "notes.txt"
    assert expand_home("~nobody-here/notes.txt") == Path("~nobody-here/notes.txt")
    assert expand_home("notes.txt") == Path("notes.txt")
