"""Resolution of settings to a target: the database, its address, and the secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote

from delf.errors import ConnectionConfigurationError, did_you_mean
from delf.machine.folders import expand_home
from delf_sql.settings import SQLSettings

if TYPE_CHECKING:
    from sqlalchemy import URL

Dialect = str
"""A database dialect: ``postgresql``, ``mysql`` (also MariaDB), ``sqlite``, ``duckdb``, or another
one of SQLAlchemy.
"""

_SCHEMES: Final[dict[str, Dialect]] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
TESTED_DIALECTS: Final = frozenset(_SCHEMES.values())
"""The dialects for which tests verify that a read-only session cannot write."""
_FILES: Final = ("sqlite", "duckdb")
_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_LABELS: Final[dict[str, str]] = {
    "postgresql": "PostgreSQL",
    "postgres": "PostgreSQL",
    "mysql": "MySQL",
    "mariadb": "MariaDB",
    "sqlite": "SQLite",
    "duckdb": "DuckDB",
    "mssql": "SQL Server",
    "oracle": "Oracle",
}
_SECRET_OPTION: Final = re.compile("pass|pwd|token|secret|key|credential|private", re.IGNORECASE)
_SERVER: Final = re.compile(
    r"""(?: (?P<user>[^:/?]*) (?: : (?P<password>[^?]*) )? @ )?
        (?: \[(?P<ipv6>[^\]]+)\] | (?P<host>[^/:?]*) ) (?: : (?P<port>\d*) )?
        (?: / (?P<database>[^?]*) )? (?: \? (?P<options>.*) )?""",
    re.VERBOSE | re.DOTALL,
)
# The minimum length of a redacted value. Shorter values occur in many texts by chance.
_MIN_SECRET_CHARS: Final = 3

HINT: Final = "for example postgresql://user:password@host/database or sqlite:///shop.db"


# The dialects that each setting is limited to; other settings apply to every database.
_DIALECTS_BY_SETTING: Final = {
    "create": _FILES,
    "attach": ("sqlite",),
    "role": ("postgresql",),
}


def check_dialect(name: str, settings: SQLSettings, target: Target) -> None:
    """Raise for settings that do not apply to the database.

    Raises:
        ConnectionConfigurationError: For the first such setting.
    """
    for field_name, dialects in _DIALECTS_BY_SETTING.items():
        if getattr(settings, field_name) and target.dialect not in dialects:
            words = " and ".join(_LABELS[dialect] for dialect in dialects)
            raise ConnectionConfigurationError(
                f"{name}: {field_name} is a setting for {words}, and this is {target.label}",
                hint=f"remove {field_name}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A database to connect to.

    Args:
        dialect: The dialect.
        label: The product's name for messages.
        database: The database's name; for SQLite and DuckDB the file's path.
        options: The query string of the URL.
        url: The URL for SQLAlchemy, for databases without a backend of their own.
        secrets: All spellings of the password, for :meth:`scrub`.
    """

    dialect: Dialect
    label: str
    database: str
    host: str | None = None
    port: int | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    url: URL | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def enforces_read_only(self) -> bool:
        """True if the database itself prevents a query from writing."""
        # Our backends open read-only sessions. All other databases have a ``url`` for SQLAlchemy.
        return self.url is None

    @property
    def place(self) -> str:
        """The database's address without credentials."""
        if self.dialect in _FILES:
            return f"the {self.label} file {self.database!r}"
        if self.url is not None:
            at = f" at {self.host}" if self.host else ""
            return f"the {self.label} database {self.database!r}{at}"
        host = self.options.get("unix_socket") or self.options.get("host") or self.host
        return f"the {self.label} server at {host or 'localhost'}:{self.port}"

    def scrub(self, text: str) -> str:
        """Return a text with all secrets removed."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def make_target(name: str, settings: SQLSettings) -> Target:
    """Return the database that the settings name, by URL or by parts.

    Raises:
        ConnectionConfigurationError: If the settings name no database, or several.
    """
    if settings.url is not None:
        parts = ("host", "port", "database", "user", "password", "db_type")
        given_parts = [part for part in parts if getattr(settings, part) is not None]
        if given_parts:
            raise ConnectionConfigurationError(
                f"{name}: url and {', '.join(given_parts)} are both set",
                hint="set one or the other",
            )
        return _from_url(name, settings.url.get_secret_value().strip())
    if settings.database is None:
        variable = f"DELF_{name.upper()}_URL"
        raise ConnectionConfigurationError(
            f"{name}: no database is named", hint=f"set url or {variable}, {HINT}"
        )
    kind = settings.db_type or "postgresql"
    if kind not in _SCHEMES:
        return _other_target(name, kind, _url_of(settings, kind))
    if kind in _FILES:
        return _file(name, kind, settings.database)
    password = settings.password.get_secret_value() if settings.password else None
    return Target(
        dialect=_SCHEMES[kind],
        label=_LABELS[kind],
        database=settings.database,
        host=settings.host,
        port=settings.port or _PORTS[_SCHEMES[kind]],
        user=settings.user,
        password=password,
        secrets=_encoded_forms(password),
    )


def _from_url(name: str, url: str) -> Target:
    """Return the database that a URL names; raise for an invalid URL."""
    scheme, separator, rest = url.partition("://")
    kind = scheme.lower().partition("+")[0]
    if not separator:
        raise ConnectionConfigurationError(f"{name}: url is not a database URL", hint=HINT)
    if kind not in _SCHEMES:
        return _other_target(name, kind, url)
    if kind in _FILES:
        label = _LABELS[kind]
        if rest and not rest.startswith("/"):
            raise ConnectionConfigurationError(
                f"{name}: a {label} url has three slashes before the path", hint=HINT
            )
        file, _, options = rest[1:].partition("?")
        if options:
            raise ConnectionConfigurationError(f"{name}: a {label} url takes no options after '?'")
        return _file(name, kind, unquote(file))
    match = _SERVER.fullmatch(rest)
    if match is None:
        raise ConnectionConfigurationError(
            f"{name}: url is not a database URL",
            hint=f"{_server_hint(kind)}; write @ : / ? # in a password as %40 %3A %2F %3F %23",
        )
    return _server(name, kind, {key: value or "" for key, value in match.groupdict().items()})


def _server_hint(kind: str) -> str:
    return f"for example {kind}://user:password@host/database"


def _server(name: str, kind: str, parts: dict[str, str]) -> Target:
    """Return the target for a URL of a database server.

    Args:
        name: The name of the connection, for error messages.
        kind: The scheme of the URL.
        parts: The parts of the URL.
    """
    encoded_password = parts["password"]
    options = dict(parse_qsl(parts["options"], keep_blank_values=True))
    password_option = options.pop("password", None)
    password = unquote(encoded_password) or password_option
    # As in PostgreSQL's own URLs, the option takes precedence over the path.
    database = options.pop("dbname", "") or unquote(parts["database"])
    if not database:
        raise ConnectionConfigurationError(
            f"{name}: url names no database", hint=_server_hint(kind)
        )
    dialect = _SCHEMES[kind]
    host = unquote(parts["ipv6"] or parts["host"])
    user = unquote(parts["user"])
    port = int(parts["port"]) if parts["port"] else _PORTS[dialect]
    return Target(
        dialect=dialect,
        label=_LABELS[kind],
        database=database,
        host=host or None,
        port=port,
        user=user or None,
        password=password,
        options=options,
        secrets=_encoded_forms(password, encoded_password),
    )


def _file(name: str, kind: str, file: str) -> Target:
    if file in ("", ":memory:"):
        raise ConnectionConfigurationError(
            f"{name}: a {_LABELS[kind]} database needs a file",
            hint=f"for example {kind}:///shop.db",
        )
    return Target(dialect=kind, label=_LABELS[kind], database=str(expand_home(file)))


def _url_of(settings: SQLSettings, kind: str) -> URL:
    from sqlalchemy import URL

    return URL.create(
        kind,
        username=settings.user,
        password=settings.password.get_secret_value() if settings.password else None,
        host=settings.host,
        port=settings.port,
        database=settings.database,
    )


def _other_target(name: str, kind: str, url: str | URL) -> Target:
    """Return the target for a database that this plugin supports only through SQLAlchemy."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    # The text before ``://`` may have a password, as in the mistyped URL ``ann:secret@db://shop``:
    # show the text in the error only if the text looks like the name of a dialect.
    shown_kind = kind if kind.isidentifier() else "…"
    try:
        parsed_url = make_url(url)
        dialect = parsed_url.get_dialect()
    except (ArgumentError, ImportError):  # no such dialect, or its driver is missing
        dialect = parsed_url = None
    # Outside of the handler, whose error may contain the URL with its password.
    if dialect is None or parsed_url is None:
        raise ConnectionConfigurationError(
            f"{name}: url starts with {shown_kind}://, and no dialect of SQLAlchemy with that "
            f"name is installed{did_you_mean(shown_kind, _SCHEMES)}",
            hint=f"{HINT}; for another database install the package with its dialect",
        )
    secrets_in_url: list[str] = []
    if parsed_url.password:
        secrets_in_url.append(str(parsed_url.password))
    for key, value in parsed_url.query.items():
        if _SECRET_OPTION.search(key):
            # SQLAlchemy gives a tuple for an option that is repeated.
            secrets_in_url += [value] if isinstance(value, str) else value
    return Target(
        dialect=dialect.name,
        label=_LABELS.get(dialect.name, dialect.name),
        database=parsed_url.database or "",
        host=parsed_url.host,
        port=parsed_url.port,
        user=parsed_url.username,
        url=parsed_url,
        secrets=_encoded_forms(*secrets_in_url),
    )


def _encoded_forms(*passwords: str | None) -> tuple[str, ...]:
    """Return the spellings of passwords in URLs and messages, the longest first, to redact them."""
    spellings: dict[str, None] = {}
    for password in filter(None, passwords):
        forms = (password, quote(password, safe=""), quote_plus(password), repr(password)[1:-1])
        spellings |= dict.fromkeys(form for form in forms if len(form) >= _MIN_SECRET_CHARS)
    return tuple(sorted(spellings, key=len, reverse=True))
