"""A check of URLs to which PostgreSQL's client library would add a login of the user."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from delf.errors import KeyAddressError
from delf.machine.folders import expand_home
from delf.settings import Source, check_variables

# Variables that the library reads for a URL without a password: the password itself, and the name
# of an entry in pg_service.conf.
_PASSWORD_VARIABLES: Final = ("PGPASSWORD", "PGSERVICE")
# Options of URLs with which the library may send a login of the user to another server.
#
# An entry of pg_service.conf may have a password. With "hostaddr", the library connects to that
# address with the password that ~/.pgpass has for the host. The driver psycopg reads "conninfo" as
# further options, such as these.
# https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS
_LOGIN_OPTIONS: Final = ("service", "hostaddr", "conninfo")
_HINT: Final = "set the whole address in the environment"


def check_login(owner: str, url: str, source: Source, *, has_password: bool = False) -> None:
    """Raise if the client library would send the user's own password to the project's server.

    A project could name a server of its own in order to receive that password.

    Args:
        owner: The owner of the URL, for the message.
        url: The URL of the database, or an empty text if the address is not a URL.
        source: The source of the address.
        has_password: Whether the owner's settings have a password of their own.

    Raises:
        KeyAddressError: If a project's file gives the address, and an option of the URL, the
            environment or a password file would supply the password.
    """
    is_of_other_database = url != "" and not url.strip().lower().startswith("postgres")
    if source != "project" or is_of_other_database:
        return
    try:
        parts = urlsplit(url)
        has_url_password = bool(parts.password)
        options = {option.lower() for option, _ in parse_qsl(parts.query, keep_blank_values=True)}
    except ValueError:  # not a URL: the library reads the address in its own way
        options, has_url_password = set[str](), False
    _check_options(owner, options)
    # Plugins differ in their use of the option "password", which may replace the URL's password.
    uses_url_password = has_url_password and "password" not in options
    if has_password or uses_url_password:
        return  # the library looks for no other password
    check_variables(owner, source, _PASSWORD_VARIABLES)
    _check_password_file(owner)


def _check_options(owner: str, options: Collection[str]) -> None:
    """Raise if an option of the URL may add a login of the user."""
    for option in _LOGIN_OPTIONS:
        if option in options:
            raise KeyAddressError(
                f"{owner}: a file of the project gives the address, and its option {option!r} may "
                "add a login of this computer",
                hint=_HINT,
            )


def _check_password_file(owner: str) -> None:
    """Raise if an entry of the user's password file has ``*`` for its host.

    An entry is a line ``host:port:database:user:password``. The library sends the password only to
    the host of the entry, and with ``*`` to any host.
    """
    file = Path(os.environ.get("PGPASSFILE") or expand_home("~/.pgpass"))
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:  # the library cannot read the file either
        return
    if any(line.startswith("*:") for line in lines):
        raise KeyAddressError(
            f"{owner}: a file of the project gives the address, and {file} has a password for "
            "any host",
            hint=_HINT + ", or name the host in the password file",
        )
