"""``delf google``: log in, log out, and see which logins there are."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypedDict, TypeVar

import click

from delf.errors import ConfigurationError
from delf.plugins.commands import Program
from delf_google.connection import SCOPE_URL_PREFIX, GoogleConnection
from delf_google.credentials import client_of, is_login, read_json
from delf_google.errors import LOGIN
from delf_google.login import can_browse, revoke, sign_in
from delf_google.settings import ACCOUNT_PATTERN
from delf_google.store import TokenStore

_TYPES: Final = ("gmail", "drive", "sheets", "docs", "calendar")


def _check_account(_: click.Context, __: click.Parameter, account: str | None) -> str | None:
    """Return the value of ``--account``; raise for a name that the settings refuse."""
    if account and re.fullmatch(ACCOUNT_PATTERN, account) is None:
        raise click.BadParameter("use letters, digits, and . @ - _, at most 64 characters")
    return account


_LOGIN_OPTIONS: Final = (
    click.option(
        "-c",
        "--connection",
        "names",
        multiple=True,
        metavar="NAME",
        help="Only this connection, or this type. May be repeated.",
    ),
    click.option(
        "--credentials",
        metavar="FILE",
        help="The OAuth client (client_secrets.json), if no connection names it.",
    ),
    click.option(
        "--account",
        metavar="NAME",
        callback=_check_account,
        help="The login's name, if there are several and no connection names one.",
    ),
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
F = TypeVar("F", bound=Callable[..., Any])


def login_options(command: F) -> F:
    """Add the options ``--connection``, ``--credentials`` and ``--account`` to a command."""
    for option in reversed(_LOGIN_OPTIONS):  # decorators apply from the last to the first
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Login:
    """The account and OAuth client with which some connections log in."""

    account: str
    client: dict[str, Any]
    scopes: tuple[str, ...]
    connections: tuple[str, ...]
    scope_inclusions: Mapping[str, frozenset[str]]

    def covered_scopes(self, granted_scopes: Iterable[str]) -> set[str]:
        """Return the granted scopes and the narrower scopes that they include."""
        covered_scopes = set(granted_scopes)
        for scope in granted_scopes:
            covered_scopes.update(self.scope_inclusions.get(scope, ()))
        return covered_scopes

    @property
    def client_id(self) -> str:
        """The client's public name."""
        return str(self.client["client_id"])


class LoginRow(TypedDict):
    """The JSON of a login.

    Args:
        account: The name of the account in the settings.
        state: The state: ``logged in``, ``not enough`` or ``not logged in``.
        connections: The connections that use the account.
        scopes: The rights that Google gave to the account.
        missing: The missing rights; empty while nobody is logged in.
    """

    account: str
    state: str
    connections: list[str]
    scopes: list[str]
    missing: list[str]


class LogoutRow(TypedDict):
    """The JSON of ``delf google logout``.

    Args:
        account: The name of the account in the settings.
        logged_out: False if nobody was logged in.
        revoked: True if Google has revoked the login.
    """

    account: str
    logged_out: bool
    revoked: bool


@click.group("google")
def google() -> None:
    """Log in to Google, for the connections in delf.toml or named with -c.

    \b
    delf google login
    delf google login -c gmail --credentials client_secrets.json
    delf google status
    """  # noqa: D301 - click's mark for lines that stay as they are


@google.command("login")
@login_options
@click.option(
    "--no-browser",
    is_flag=True,
    help="Print an address to open elsewhere, instead of opening a browser.",
)
@as_json_option
@click.pass_context
def login_command(
    ctx: click.Context,
    names: tuple[str, ...],
    credentials: str | None,
    account: str | None,
    no_browser: bool,
    as_json: bool,
) -> None:
    """Log in with a browser, with only the OAuth scopes that the connections need."""
    store = TokenStore()
    without_browser = no_browser or not can_browse()
    show = partial(click.echo, err=as_json)
    ask: Callable[[str], str] | None = (
        partial(click.prompt, err=as_json) if without_browser else None
    )
    rows: list[LoginRow] = []
    for login in _logins(ctx, names, credentials, account):
        show(f"Logging in as {login.account!r}, for {', '.join(login.connections)}.")
        new_login = sign_in(login.client, login.scopes, show=show, ask=ask)
        path = store.write(login.account, login.client_id, new_login)
        show(f"Logged in; stored in {path}.")
        row = _status(login, store)
        rows.append(row)
        if row["missing"]:
            click.echo(
                f"Not granted, so some actions will fail: {' '.join(row['missing'])}", err=True
            )
    if as_json:
        click.echo(json.dumps(rows, indent=2))


@google.command("logout")
@login_options
@as_json_option
@click.pass_context
def logout_command(
    ctx: click.Context,
    names: tuple[str, ...],
    credentials: str | None,
    account: str | None,
    as_json: bool,
) -> None:
    """Revoke the login at Google, and delete it from this machine."""
    store = TokenStore()
    rows: list[LogoutRow] = []
    for login in _logins(ctx, names, credentials, account):
        stored_login = store.read(login.account, login.client_id)
        row = LogoutRow(account=login.account, logged_out=stored_login is not None, revoked=False)
        rows.append(row)
        if stored_login is None:
            click.echo(f"Nobody is logged in as {login.account!r}.", err=as_json)
            continue
        row["revoked"] = revoke(stored_login)
        store.delete(login.account, login.client_id)
        click.echo(f"Logged out of {login.account!r}.", err=as_json)
        if not row["revoked"]:
            click.echo(
                "Google did not confirm that the login is revoked; check the permission at "
                "https://myaccount.google.com/connections",
                err=True,
            )
    if as_json:
        click.echo(json.dumps(rows, indent=2))


@google.command("status")
@login_options
@as_json_option
@click.pass_context
def status_command(
    ctx: click.Context,
    names: tuple[str, ...],
    credentials: str | None,
    account: str | None,
    as_json: bool,
) -> None:
    """List the stored logins, and the OAuth scopes that they miss. Sends no request to Google."""
    store = TokenStore()
    logins, names_without_login = _logins_and_names_without_login(ctx, names, credentials, account)
    rows = [_status(login, store) for login in logins]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        if names_without_login:
            click.echo(_no_login_needed(names_without_login))
        for row in rows:
            click.echo(f"{row['account']}: {row['state']}, for {', '.join(row['connections'])}")
            for scope in row["missing"]:
                click.echo(f"  missing: {scope}")
    if any(row["state"] != "logged in" for row in rows):
        click.echo("hint: delf google login", err=True)
        ctx.exit(1)


def _status(login: Login, store: TokenStore) -> LoginRow:
    """Return the account, state, connections, granted scopes and missing scopes of a login."""
    stored_login = store.read(login.account, login.client_id)
    granted_scopes: set[str] = set()
    missing: list[str] = []
    state = "not logged in"
    if stored_login is not None:
        granted_scopes = set(stored_login.get("scopes") or ())
        missing = sorted(set(login.scopes) - login.covered_scopes(granted_scopes))
        state = "not enough" if missing else "logged in"
    return LoginRow(
        account=login.account,
        state=state,
        connections=list(login.connections),
        scopes=sorted(granted_scopes),
        missing=missing,
    )


def _no_login_needed(names: Sequence[str]) -> str:
    return f"no login is needed for {', '.join(names)}: the settings already have a key or a login"


def _logins(
    ctx: click.Context, names: Sequence[str], credentials: str | None, account: str | None
) -> list[Login]:
    """Return the logins that connections need; raise if no connection needs a login."""
    logins, names_without_login = _logins_and_names_without_login(ctx, names, credentials, account)
    if not logins:
        raise ConfigurationError(_no_login_needed(names_without_login))
    return logins


def _logins_and_names_without_login(
    ctx: click.Context, names: Sequence[str], credentials: str | None, account: str | None
) -> tuple[list[Login], list[str]]:
    """Return the logins that connections need, and the names of connections that need no login.

    A connection needs no login if its settings already have a key or a login. There is one login
    for each pair of account and OAuth client.

    Args:
        ctx: The context of the command.
        names: The connections; empty for all connections to Google in the project.
        credentials: The path of the OAuth client's file; None for the path in the settings.
        account: The account; None or empty for the account in the settings.
    """
    program: Program = ctx.find_root().obj
    project = program.load_project()
    connections = project.connections
    google_connections = [name for name in connections if connections[name].type in _TYPES]
    connection_names = names or google_connections
    if not connection_names:
        raise ConfigurationError(
            f"there is no connection to Google in {project.file or 'a delf.toml'}",
            hint="name one: delf google login -c gmail --credentials client_secrets.json",
        )
    logins: dict[tuple[str, str], Login] = {}
    names_without_login: list[str] = []
    connect = project.connector(program.discover(project.environ))
    for connection in map(connect, connection_names):
        if not isinstance(connection, GoogleConnection):
            raise ConfigurationError(f"{connection.name} is not a connection to Google")
        client = _client_for_login(connection, credentials)
        if client is None:
            names_without_login.append(connection.name)
        else:
            _add_login(logins, connection, account or connection.settings.account, client)
    return list(logins.values()), names_without_login


def _client_for_login(
    connection: GoogleConnection, credentials: str | None
) -> dict[str, Any] | None:
    """Return the OAuth client with which a connection logs in; None if no login is needed."""
    settings = connection.settings
    if settings.service_account or settings.token:
        return None
    path = credentials or settings.oauth_credentials
    if path is None:
        raise ConfigurationError(
            f"{connection.name}: no OAuth client is named",
            hint=f"give its file: {LOGIN} -c {connection.name} --credentials FILE.json",
        )
    info = read_json(path, connection.name)
    if is_login(info):  # the file is a finished login instead of an OAuth client
        return None
    return client_of(info, path, connection.name)


def _add_login(
    logins: dict[tuple[str, str], Login],
    connection: GoogleConnection,
    account: str,
    client: dict[str, Any],
) -> None:
    """Add a connection and its scopes to the login for its account and client."""
    key = (account, str(client["client_id"]))
    login = logins.get(key) or Login(
        account, client, scopes=(), connections=(), scope_inclusions={}
    )
    scope_inclusions = dict(login.scope_inclusions)
    for scope, included_scopes in connection.scope_inclusions.items():
        included_urls = frozenset(SCOPE_URL_PREFIX + included for included in included_scopes)
        scope_inclusions[SCOPE_URL_PREFIX + scope] = included_urls
    logins[key] = replace(
        login,
        client=client,  # if several files have this client, the file of the last connection counts
        scopes=tuple(sorted({*login.scopes, *connection.needed_scopes()})),
        connections=(*login.connections, connection.name),
        scope_inclusions=scope_inclusions,
    )
