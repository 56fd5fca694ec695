"""A server with a user who has agreed to everything, and what makes connections to it."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delf_google.connection import SCOPE_URL_PREFIX
from support.google.server import GoogleServer, google_server

USER = "ada@example.com"
ALL = [
    SCOPE_URL_PREFIX + name
    for name in (
        "gmail.modify",
        "drive",
        "spreadsheets",
        "documents",
        "calendar.readonly",
        "calendar.events",
    )
]


@pytest.fixture
def google() -> Iterator[GoogleServer]:
    with google_server() as server:
        yield server


@pytest.fixture
def credentials(google: GoogleServer, tmp_path: pathlib.Path) -> str:
    """A file of an authorised user."""
    path = tmp_path / "authorized_user.json"
    path.write_text(json.dumps(google.logins.authorized_user(google.url, USER, ALL)))
    return str(path)


@pytest.fixture
def connect(
    google: GoogleServer, credentials: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Makes a connection of a class to the server; its pauses take no time."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def make(kind: Any, **settings: Any) -> Any:
        if not {"token", "service_account", "oauth_credentials"} & settings.keys():
            settings["oauth_credentials"] = credentials
        made = kind(**{"base_url": google.url, **settings})
        made.pauses = []

        async def sleep(seconds: float) -> None:
            made.pauses.append(seconds)

        made.transport.sleep = sleep
        return made

    return make
