"""Tests of `delf google`: login with and without a browser, status, and logout."""

from __future__ import annotations

import json
import re
import shlex
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from delf.testing import DelfProject, PluginContract
from delf_google.connection import SCOPE_URL_PREFIX
from delf_google.errors import LoginError
from delf_google.store import TokenStore
from support.google import GoogleServer
from support.google.logins import CLIENT_ID, CLIENT_SECRET

BROWSER = """#!{python}
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).status)
"""


class TestPlugin(PluginContract):
    name = "google"
    distribution = "delf-google"
    vendors = ("google_auth_oauthlib", "oauthlib", "requests")


@pytest.fixture
def project(
    google: GoogleServer, delf_project: DelfProject, monkeypatch: pytest.MonkeyPatch
) -> DelfProject:
    root = delf_project.root
    (root / "client_secrets.json").write_text(json.dumps(google.logins.client_secrets(google.url)))
    browser = root / "browser"
    browser.write_text(BROWSER.format(python=sys.executable))
    browser.chmod(0o755)
    for name, value in {
        "BROWSER": f"{browser} %s &",
        "XDG_CONFIG_HOME": str(root / "config"),
        "OAUTHLIB_INSECURE_TRANSPORT": "1",  # the test's server has no certificate
    }.items():
        monkeypatch.setenv(name, value)
    # What the person logged in with goes to no address of a file.
    delf_project.environ |= {f"DELF_{name}_BASE_URL": google.url for name in ("MAIL", "FILES")}
    delf_project.write_config("""
        [connections.mail]
        type = "gmail"
        oauth_credentials = "client_secrets.json"
        allow = ["reading"]

        [connections.files]
        type = "drive"
        oauth_credentials = "client_secrets.json"
        allow = ["search", "create"]
    """)
    return delf_project


def kept(project: DelfProject) -> Any:
    return TokenStore(project.root / "config/delf/google").read("default", CLIENT_ID)


def test_google_commands_log_in_and_out(google: GoogleServer, project: DelfProject) -> None:
    before = project.run("google", "status")
    assert before.exit_code == 1
    assert "default: not logged in, for mail, files" in before.stdout
    done = project.spawn("google", "login").succeeded()
    assert "Logged in; stored in" in done.stdout
    assert "config/delf/google" in done.stdout
    least = {
        SCOPE_URL_PREFIX + "gmail.readonly",
        SCOPE_URL_PREFIX + "drive.readonly",
        SCOPE_URL_PREFIX + "drive.file",
    }
    assert set(kept(project)["scopes"]) == least
    assert "logged in" in project.run("google", "status").succeeded().stdout
    (row,) = json.loads(project.run("google", "status", "--json").succeeded().stdout)
    assert row["missing"] == []
    again = project.spawn("google", "login", "--json").succeeded()
    assert json.loads(again.stdout) == [row]
    assert "Logged in; stored in" in again.stderr
    google.gmail.deliver("ada@example.com", b"Subject: Hello\r\n\r\nx")
    llm = project.install_model('print([m["subject"] for m in (await mail.search())["messages"]])')
    task = project.run("run", "What is new?", "-c", "mail", "--llm", llm, "--sandbox", "local")
    assert "['Hello']" in task.succeeded().stdout
    shown = done.stdout + done.stderr + task.stdout + task.stderr
    secrets = [kept(project)["refresh_token"], kept(project)["token"], CLIENT_SECRET]
    assert not [secret for secret in secrets if secret in shown]
    *_, grant = google.logins.grants.values()
    assert "Logged out" in project.run("google", "logout").succeeded().stdout
    assert grant.revoked
    assert kept(project) is None
    assert "Nobody is logged in" in project.run("google", "logout").succeeded().stdout
    (row,) = json.loads(project.run("google", "logout", "--json").succeeded().stdout)
    assert row == {"account": "default", "logged_out": False, "revoked": False}


def test_logout_reports_an_unconfirmed_revocation(
    google: GoogleServer, project: DelfProject
) -> None:
    """Google is reachable, but refuses to revoke a login that is revoked already."""
    project.spawn("google", "login").succeeded()
    google.logins.revoke_all()
    done = project.run("google", "logout").succeeded()
    assert "Logged out" in done.stdout
    assert "Google did not confirm that the login is revoked" in done.stderr
    assert kept(project) is None


def test_refused_scopes_are_reported(google: GoogleServer, project: DelfProject) -> None:
    google.logins.declined = frozenset({SCOPE_URL_PREFIX + "drive.file"})
    done = project.spawn("google", "login").succeeded()
    assert f"Not granted, so some actions will fail: {SCOPE_URL_PREFIX}drive.file" in done.stderr
    status = project.run("google", "status")
    assert (status.exit_code, "not enough" in status.stdout) == (1, True)
    assert f"missing: {SCOPE_URL_PREFIX}drive.file" in status.stdout


def test_login_uses_the_latest_file_of_a_client(google: GoogleServer, project: DelfProject) -> None:
    """Two connections name files of one client, and the first file has a replaced secret."""
    outdated = google.logins.client_secrets(google.url)
    outdated["installed"]["client_secret"] = "replaced"
    (project.root / "old.json").write_text(json.dumps(outdated))
    config = (project.root / "delf.toml").read_text()
    project.write_config(config.replace("client_secrets.json", "old.json", 1))
    project.spawn("google", "login").succeeded()
    assert kept(project)["client_secret"] == CLIENT_SECRET


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def test_login_on_another_machine_accepts_the_pasted_address(
    google: GoogleServer, project: DelfProject
) -> None:
    from delf_google.login import sign_in

    message: list[str] = []

    def ask(_: str) -> str:
        address = re.search(r"http\S+", message[0])
        assert address is not None
        try:
            urllib.request.build_opener(_NoRedirect).open(address[0])
        except urllib.error.HTTPError as answer:
            with answer:
                return str(answer.headers["Location"])
        raise AssertionError

    client = google.logins.client_secrets(google.url)["installed"]
    login = sign_in(client, [SCOPE_URL_PREFIX + "drive"], show=message.append, ask=ask)
    assert login["refresh_token"] in google.logins.grants
    answer = project.run("google", "login", "--no-browser", stdin="http://localhost:1/?nothing=1\n")
    assert answer.exit_code == 1
    assert "it has no code" in answer.stderr
    bad = project.run(
        "google", "login", "--no-browser", stdin="http://localhost:1/?code=x&state=forged\n"
    )
    assert bad.exit_code == 1
    assert "Google did not log in" in bad.stderr


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((503, b"<html>"), "Missing access token"),
        ((200, []), "not valid"),
        ((200, {"access_token": "ya29.x"}), "not valid"),
        ((200, {"access_token": "ya29.x", "expires_in": "soon"}), "not valid"),
        ((400, b'"x"'), "not valid"),
        (None, "cannot be reached"),
    ],
)
def test_failing_token_server_ends_the_login_with_an_error(
    google: GoogleServer, monkeypatch: pytest.MonkeyPatch, answer: Any, message: str
) -> None:
    from delf_google.login import sign_in

    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    monkeypatch.setattr(google.logins, "token_page", lambda *_: answer)
    client = google.logins.client_secrets(google.url)["installed"]
    if answer is None:
        client["token_uri"] = "http://127.0.0.1:9/token"
    shown: list[str] = []

    def ask(_: str) -> str:
        state = re.search(r"state=([^&\s]+)", shown[0])
        assert state is not None
        return f"http://localhost:1/?code=x&state={state[1]}"

    with pytest.raises(LoginError, match=message):
        sign_in(client, [SCOPE_URL_PREFIX + "drive"], show=shown.append, ask=ask)


def test_google_login_without_a_connection_is_reported(
    google: GoogleServer, project: DelfProject
) -> None:
    project.write_config("")
    nothing = project.spawn("google", "login")
    assert nothing.exit_code == 2
    assert "no connection to Google" in nothing.stderr
    project.spawn(
        "google", "login", "-c", "docs", "--credentials", "client_secrets.json"
    ).succeeded()
    assert set(kept(project)["scopes"]) == {
        SCOPE_URL_PREFIX + "documents",
        SCOPE_URL_PREFIX + "drive",
    }
    wrong = project.run("google", "login", "-c", "docs")
    assert wrong.exit_code == 2
    assert "no OAuth client is named" in wrong.stderr
    typed = shlex.split(wrong.stderr.partition("hint: give its file: ")[2].strip())
    nowhere = project.run(*typed[1:])
    assert "'FILE.json' cannot be read" in nowhere.stderr
    assert "https://console.cloud.google.com/apis/credentials" in nowhere.stderr


def test_wider_login_satisfies_narrower_scopes(google: GoogleServer, project: DelfProject) -> None:
    wide = [SCOPE_URL_PREFIX + "gmail.modify", SCOPE_URL_PREFIX + "drive"]
    login = {**google.logins.authorized_user(google.url, "ada@example.com", wide), "scopes": wide}
    store = TokenStore(project.root / "config/delf/google")
    store.write("default", CLIENT_ID, login)
    assert "default: logged in" in project.run("google", "status").succeeded().stdout
    store.write("work", CLIENT_ID, login)
    other = project.run("google", "status", "-c", "mail", "--account", "work").succeeded()
    assert other.stdout == "work: logged in, for mail\n"


def test_account_that_settings_refuse_is_refused(project: DelfProject) -> None:
    status = project.run("google", "status", "--account", "../work")
    assert status.exit_code == 2
    assert "use letters, digits" in status.stderr


def test_unreadable_login_counts_as_missing(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.path("default", CLIENT_ID).mkdir()  # a folder in place of the file
    assert store.read("default", CLIENT_ID) is None


def test_stored_login_file_needs_no_login(google: GoogleServer, project: DelfProject) -> None:
    login = google.logins.authorized_user(google.url, "ada@example.com", [])
    (project.root / "client_secrets.json").write_text(json.dumps(login))
    answer = project.run("google", "login")
    assert answer.exit_code == 2
    assert "no login is needed for mail, files" in answer.stderr
    status = project.run("google", "status").succeeded()
    assert status.stdout.startswith("no login is needed for mail, files")
    assert json.loads(project.run("google", "status", "--json").succeeded().stdout) == []
