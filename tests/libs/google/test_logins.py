"""Tests of every kind of credentials, and of the errors for unusable ones."""

from __future__ import annotations

import asyncio
import json
import pathlib
import stat
import subprocess
import sys
from typing import Any

import pytest

from delf.errors import (
    ConnectionConfigurationError,
    ConnectionFileNotFoundError,
    ConnectionUnavailableError,
)
from delf_gmail import Gmail
from delf_google.connection import SCOPE_URL_PREFIX
from delf_google.errors import GoogleError, LoginError, MissingScopeError
from delf_google.store import TokenStore
from support.google import GoogleServer
from support.google.fixtures import ALL, USER
from support.google.logins import CLIENT_ID

SEND = SCOPE_URL_PREFIX + "gmail.send"


async def labels(connection: Any) -> int:
    try:
        return len(await connection.labels())
    finally:
        await connection.aclose()


async def test_service_account_acts_for_the_given_user(
    google: GoogleServer, connect: Any, tmp_path: pathlib.Path
) -> None:
    key = tmp_path / "robot.json"
    key.write_text(json.dumps(google.logins.service_account(google.url)))
    google.gmail.deliver("bob@example.com", b"Subject: For Bob\r\n\r\nHello")
    gmail = connect(Gmail, service_account=str(key), delegated_user="bob@example.com", allow="read")
    assert [m["subject"] for m in (await gmail.search())["messages"]] == ["For Bob"]
    (token,) = google.logins.tokens.values()
    assert token.scopes == {SCOPE_URL_PREFIX + "gmail.readonly"}  # the least that allow needs
    google.logins.delegation = False
    google.logins.expire_all()
    with pytest.raises(LoginError, match="unauthorized_client"):
        await labels(gmail)


async def test_given_token_is_used_until_google_rejects_it(
    google: GoogleServer, connect: Any
) -> None:
    gmail = connect(Gmail, token=google.logins.token_for(USER, ALL))
    assert await labels(gmail)
    google.logins.expire_all()
    with pytest.raises(LoginError, match="does not accept the configured token") as caught:
        await labels(gmail)
    assert "ya29" not in str(caught.value)


async def test_application_default_credentials_are_used(
    google: GoogleServer, connect: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "robot.json"
    key.write_text(json.dumps(google.logins.service_account(google.url)))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "tests")
    gmail = connect(Gmail, oauth_credentials=None)
    assert await labels(gmail)


async def test_expired_token_is_renewed_once_for_all(google: GoogleServer, connect: Any) -> None:
    gmail = connect(Gmail)
    await gmail.labels()
    google.logins.expire_all()
    before = google.logins.refreshes
    await asyncio.gather(*(gmail.labels() for _ in range(20)))
    assert google.logins.refreshes == before + 1
    await gmail.aclose()


async def test_revoked_login_says_what_to_do(google: GoogleServer, connect: Any) -> None:
    gmail = connect(Gmail)
    await gmail.labels()
    google.logins.revoke_all()
    with pytest.raises(
        LoginError, match=r"expired or revoked \(invalid_grant: Token has"
    ) as caught:
        await labels(gmail)
    assert caught.value.hint == "run delf google login"


async def test_requests_name_their_quota_project(
    google: GoogleServer, connect: Any, tmp_path: pathlib.Path
) -> None:
    google.gmail.deliver(USER, b"Subject: Hi\r\n\r\nx")
    google.logins.quota_project = "our-project"
    info = google.logins.authorized_user(google.url, USER, ALL)
    path = tmp_path / "application_default_credentials.json"
    path.write_text(json.dumps(info))
    with pytest.raises(GoogleError, match="requires a quota project"):
        await labels(connect(Gmail, oauth_credentials=str(path)))
    path.write_text(json.dumps({**info, "quota_project_id": "our-project"}))
    gmail = connect(Gmail, oauth_credentials=str(path))
    assert await gmail.search()
    assert await gmail.send(USER, "x", "x")
    await gmail.aclose()


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ({"account": "work"}, "delf google login -c gmail --credentials {client} --account work"),
        ({}, "delf google login -c gmail --credentials {client}"),
    ],
)
async def test_first_use_error_names_the_login_command(
    google: GoogleServer, connect: Any, tmp_path: pathlib.Path, settings: Any, command: str
) -> None:
    client = tmp_path / "client_secrets.json"
    client.write_text(json.dumps(google.logins.client_secrets(google.url)))
    with pytest.raises(LoginError, match="nobody has logged in") as caught:
        await labels(connect(Gmail, oauth_credentials=str(client), **settings))
    assert caught.value.hint == f"run {command.format(client=client)}"


async def test_missing_credentials_error_names_the_login_command(
    connect: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    for name in ("HOME", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(LoginError, match="there are no credentials") as caught:
        await labels(connect(Gmail, oauth_credentials=None))
    assert "delf google login -c gmail --credentials client_secrets.json" in caught.value.hint


async def test_missing_scope_is_named(google: GoogleServer, connect: Any) -> None:
    gmail = connect(Gmail, token=google.logins.token_for(USER, [SEND]), allow=["read"])
    with pytest.raises(MissingScopeError, match=r"auth/gmail\.readonly") as caught:
        await labels(gmail)
    assert "delf google login" in (caught.value.hint or "")
    assert caught.value.scopes == (SCOPE_URL_PREFIX + "gmail.readonly",)


async def test_missing_named_login_is_reported(
    google: GoogleServer, connect: Any, tmp_path: pathlib.Path
) -> None:
    client = tmp_path / "client_secrets.json"
    client.write_text(json.dumps(google.logins.client_secrets(google.url)))
    gmail = connect(Gmail, oauth_credentials=str(client), account="work")
    with pytest.raises(LoginError, match="nobody has logged in as 'work'"):
        await labels(gmail)
    store = TokenStore()
    store.write("work", CLIENT_ID, google.logins.authorized_user(google.url, USER, ALL))
    assert await labels(gmail)
    path = next(store.folder.iterdir())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    kept = json.loads(path.read_text())
    assert kept["token"] in google.logins.tokens  # other processes need not ask again
    refreshes = google.logins.refreshes
    assert await labels(connect(Gmail, oauth_credentials=str(client), account="work"))
    assert google.logins.refreshes == refreshes


async def test_login_keeps_its_scopes_after_renewal(
    google: GoogleServer, connect: Any, tmp_path: pathlib.Path
) -> None:
    client = tmp_path / "client_secrets.json"
    client.write_text(json.dumps(google.logins.client_secrets(google.url)))
    gmail = connect(Gmail, oauth_credentials=str(client))
    store = TokenStore()
    login = {**google.logins.authorized_user(google.url, USER, ALL), "scopes": ALL, "own": 1}
    store.write("default", CLIENT_ID, login)
    assert await gmail.labels()
    google.logins.expire_all()
    assert await labels(gmail)
    kept = store.read("default", CLIENT_ID) or {}
    assert sorted(kept["scopes"]) == sorted(ALL)
    assert kept["token"] in google.logins.tokens
    assert kept["own"] == 1


async def test_login_file_written_by_google_auth_is_accepted(
    google: GoogleServer, connect: Any, tmp_path: pathlib.Path
) -> None:
    from google.oauth2.credentials import Credentials

    info = google.logins.authorized_user(google.url, USER, ALL)
    own = {key: info[key] for key in ("refresh_token", "client_id", "client_secret", "token_uri")}
    path = tmp_path / "token.json"
    path.write_text(Credentials(None, scopes=ALL, **own).to_json())
    assert "type" not in json.loads(path.read_text())
    assert await labels(connect(Gmail, oauth_credentials=str(path)))


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"oauth_credentials": "nowhere.json"}, ConnectionFileNotFoundError, "nowhere.json"),
        ({"service_account": "nowhere.json"}, ConnectionFileNotFoundError, "nowhere.json"),
        (
            {"token": "x", "service_account": "y"},
            ConnectionConfigurationError,
            "cannot be used together",
        ),
        (
            {"delegated_user": "bob@example.com"},
            ConnectionConfigurationError,
            "needs service_account",
        ),
        ({"base_url": "localhost"}, ConnectionConfigurationError, "http"),
        ({"account": "../x"}, ConnectionConfigurationError, "account"),
    ],
)
def test_invalid_login_settings_are_refused(settings: Any, kind: Any, message: str) -> None:
    with pytest.raises(kind, match=message):
        Gmail(**settings)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json", "not a JSON object"),
        ("[]", "not a JSON object"),
        ('{"a": 1}', "no OAuth client"),
    ],
)
async def test_invalid_credential_file_is_refused(
    content: str, message: str, connect: Any, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(ConnectionConfigurationError, match=message):
        await labels(connect(Gmail, oauth_credentials=str(path)))
    with pytest.raises(ConnectionConfigurationError):
        await labels(connect(Gmail, service_account=str(path)))


def test_login_requests_only_the_needed_scopes() -> None:
    assert Gmail(allow="read").needed_scopes() == (SCOPE_URL_PREFIX + "gmail.readonly",)
    assert Gmail().needed_scopes() == (SCOPE_URL_PREFIX + "gmail.modify",)
    assert Gmail(allow=False).needed_scopes() == ()


def test_vendor_library_is_imported_on_the_first_call() -> None:
    code = """
import sys
from delf_calendar import Calendar
from delf_docs import Docs
from delf_drive import Drive
from delf_gmail import Gmail
from delf_sheets import Sheets
for kind in (Calendar, Docs, Drive, Gmail, Sheets):
    kind().inspect(verbose=True)
vendors = {"cryptography", "google", "httpx", "markdown_it", "oauthlib", "requests"}
sys.exit(", ".join({name.partition(".")[0] for name in sys.modules} & vendors) or None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


REFUSAL = {"error": "invalid_grant", "error_description": "Invalid JWT: Check your iat and exp."}
TOKEN = {"access_token": "ya29.one", "expires_in": 3600}


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (503, b"<html>down", "token server fails: <html>down"),
        (500, {"error": "internal_failure"}, "token server fails: internal_failure"),
        (429, {"error": "rate_limited"}, "token server fails: rate_limited"),
        (400, b"<html>", "token server fails: <html>"),
        (302, b"", "it redirects"),
        (200, b"<html>", "not valid"),
        (200, [], "not valid"),
        (200, {}, "No access token"),
        (200, b"[" * 100_000, "not valid"),
        (200, b"\xff", "not valid"),
        (200, b"[" * 2_000_000, "its answer cannot be read: it has more than 1,000,000 bytes"),
        (200, TOKEN | {"expires_in": "soon"}, "not valid"),
        (200, TOKEN | {"expires_in": 1e300}, "not valid"),
        (200, TOKEN | {"access_token": None}, "no valid token"),
        (200, TOKEN | {"access_token": "ya29.é"}, "no valid token"),
        (200, TOKEN | {"access_token": "ya29\r\nX: y"}, "no valid token"),
        (400, [], "not valid"),
    ],
)
async def test_failing_token_server_does_not_count_as_a_revoked_login(
    google: GoogleServer, connect: Any, monkeypatch: Any, status: int, body: Any, message: str
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)  # of google-auth, between its attempts
    monkeypatch.setattr(google.logins, "token_page", lambda *_: (status, body))
    with pytest.raises(ConnectionUnavailableError, match=message) as caught:
        await labels(connect(Gmail))
    assert not isinstance(caught.value, LoginError)


async def test_refused_login_quotes_the_explanation(
    google: GoogleServer, connect: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(google.logins, "token_page", lambda *_: (400, REFUSAL))
    with pytest.raises(LoginError, match="Check your iat and exp"):
        await labels(connect(Gmail))


async def test_configured_token_that_no_header_can_carry_is_refused(connect: Any) -> None:
    with pytest.raises(LoginError, match="characters that no token has"):
        await labels(connect(Gmail, token="ya29.é"))
