"""From settings to a target: which database, reached how, and which texts are secret."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from delf.errors import ConnectionConfigurationError, did_you_mean
from delf_sql.settings import SQLSettings

Dialect = Literal["postgresql", "mysql", "sqlite"]

_SCHEMES: Final[dict[str, Dialect]] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_LABELS: Final[dict[str, str]] = {
    "postgresql": "PostgreSQL",
    "postgres": "PostgreSQL",
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "sqlite": "SQLite",
}
_SERVER: Final = re.compile(
    r"""(?: (?P<user>[^:/?]*) (?: : (?P<password>[^?]*) )? @ )?
        (?: \[(?P<ipv6>[^\]]+)\] | (?P<host>[^/:?]*) ) (?: : (?P<port>\d*) )?
        (?: / (?P<database>[^?]*) )? (?: \? (?P<options>.*) )?""",
    re.VERBOSE | re.DOTALL,
)
_SHORTEST_SECRET: Final = 3
"""Shorter ones are in every text by chance."""

HINT: Final = "for example postgresql://user:password@host/database or sqlite:///shop.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A database to connect to.

    Args:
        dialect: Which of the three ways to speak.
        label: The product's name for messages.
        database: The database's name; for SQLite the file's path.
        options: What stood behind ``?`` in the URL.
        secrets: Every spelling of the password, for :meth:`scrub`.
    """

    dialect: Dialect
    label: str
    database: str
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def place(self) -> str:
        """Where it is, without credentials."""
        if self.dialect == "sqlite":
            return f"the SQLite file {self.database!r}"
        host = self.options.get("unix_socket") or self.options.get("host") or self.host
        return f"the {self.label} server at {host or 'localhost'}:{self.port}"

    def scrub(self, text: str) -> str:
        """The text without any secret."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def make_target(name: str, settings: SQLSettings) -> Target:
    """The target that settings describe.

    Args:
        name: The connection's name, for messages.
        settings: Validated settings.

    Raises:
        ConnectionConfigurationError: When they name no database, or two.
    """
    if settings.url is not None:
        parts = ("host", "port", "database", "user", "password", "db_type")
        given = [part for part in parts if getattr(settings, part) is not None]
        if given:
            raise ConnectionConfigurationError(
                f"{name}: url and {', '.join(given)} are both set", hint="set one or the other"
            )
        return _from_url(name, settings.url.get_secret_value().strip())
    if settings.database is None:
        variable = f"DELF_{name.upper()}_URL"
        raise ConnectionConfigurationError(
            f"{name}: no database is named", hint=f"set url or {variable}, {HINT}"
        )
    kind = settings.db_type or "postgresql"
    password = settings.password.get_secret_value() if settings.password else None
    if kind == "sqlite":
        return _sqlite(name, settings.database)
    return Target(
        dialect=_SCHEMES[kind],
        label=_LABELS[kind],
        database=settings.database,
        host=settings.host,
        port=settings.port or _PORTS[_SCHEMES[kind]],
        user=settings.user,
        password=password,
        secrets=_spellings(password),
    )


def _from_url(name: str, url: str) -> Target:
    scheme, separator, rest = url.partition("://")
    kind = scheme.lower().partition("+")[0]
    if not separator:
        raise ConnectionConfigurationError(f"{name}: url is no database URL", hint=HINT)
    if kind not in _SCHEMES:
        shown = kind if kind.isidentifier() else "…"
        raise ConnectionConfigurationError(
            f"{name}: url starts with {shown}://{did_you_mean(shown, _SCHEMES)}", hint=HINT
        )
    if kind == "sqlite":
        if rest and not rest.startswith("/"):
            raise ConnectionConfigurationError(
                f"{name}: a SQLite url has three slashes before the path", hint=HINT
            )
        file, _, options = rest[1:].partition("?")
        if options:
            raise ConnectionConfigurationError(f"{name}: a SQLite url takes no options after '?'")
        return _sqlite(name, unquote(file))
    match = _SERVER.fullmatch(rest)
    if match is None:
        raise ConnectionConfigurationError(
            f"{name}: url is no database URL",
            hint=f"{HINT}; write @ : / ? # in a password as %40 %3A %2F %3F %23",
        )
    return _server(name, kind, {key: value or "" for key, value in match.groupdict().items()})


def _server(name: str, kind: str, parts: dict[str, str]) -> Target:
    raw = parts["password"]
    options = dict(parse_qsl(parts["options"], keep_blank_values=True))
    extra = options.pop("password", None)
    password = unquote(raw) or extra
    database = unquote(parts["database"]) or options.pop("dbname", "")
    if not database:
        raise ConnectionConfigurationError(f"{name}: url names no database", hint=HINT)
    dialect = _SCHEMES[kind]
    return Target(
        dialect=dialect,
        label=_LABELS[kind],
        database=database,
        host=unquote(parts["ipv6"] or parts["host"]) or None,
        port=int(parts["port"]) if parts["port"] else _PORTS[dialect],
        user=unquote(parts["user"]) or None,
        password=password,
        options=options,
        secrets=_spellings(password, raw),
    )


def _sqlite(name: str, file: str) -> Target:
    if file in ("", ":memory:"):
        raise ConnectionConfigurationError(
            f"{name}: a SQLite database needs a file", hint="for example sqlite:///shop.db"
        )
    return Target(dialect="sqlite", label="SQLite", database=str(Path(file).expanduser()))


def _spellings(*passwords: str | None) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for password in passwords:
        for text in (
            (password, quote(password, safe=""), quote_plus(password), repr(password)[1:-1])
            if password
            else ()
        ):
            if text and len(text) >= _SHORTEST_SECRET:
                found[text] = None
    return tuple(sorted(found, key=len, reverse=True))
