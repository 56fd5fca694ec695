"""The settings of a SQL connection."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, unquote

from pydantic import Field, ValidationInfo, field_validator

from delf.settings import LocalPath, PluginSettings, SecretStr, beside, folder_of

_FILE_SCHEMES: Final = ("sqlite", "duckdb")


class SQLSettings(PluginSettings):
    """The database's address, and the limits of statements."""

    url: SecretStr | None = Field(
        default=None,
        description=(
            "postgresql://, postgres://, mysql://, mariadb://, sqlite:///path, "
            "duckdb:///path, or any other URL of SQLAlchemy whose dialect is installed. "
            "A driver in the first ones, such as postgresql+psycopg2, is ignored."
        ),
    )
    db_type: str | None = Field(
        default=None,
        description=("The kind of database, if there is no url; postgresql when omitted."),
    )
    host: str | None = Field(default=None, description="The server; localhost when omitted.")
    port: int | None = Field(
        default=None, ge=1, le=65535, description=("The server's port; the usual one when omitted.")
    )
    database: str | None = Field(
        default=None, description="The database; for SQLite and DuckDB its path."
    )
    user: str | None = Field(default=None, description=("The user who logs in."))
    password: SecretStr | None = Field(default=None, description="The user's password.")
    statement_timeout: float = Field(
        default=30.0,
        gt=0,
        le=86_400,
        description=("Seconds after which the database cancels a statement."),
    )
    connect_timeout: float = Field(
        default=10.0, gt=0, le=600, description="Seconds to wait for the server's answer."
    )
    max_rows: int = Field(
        default=1000, ge=1, le=1_000_000, description="More rows than this are an error."
    )
    max_bytes: int = Field(
        default=64_000_000, ge=1000, description="A larger result than this is an error."
    )
    pool_size: int = Field(
        default=5, ge=1, le=100, description=("Statements at the same time; more wait.")
    )
    schema_chars: int = Field(
        default=8000, ge=200, description="The most text about the schema in a prompt."
    )
    schema_tables: int = Field(
        default=2000,
        ge=1,
        description=(
            "With more tables than this, only the columns of tables with matching names are read."
        ),
    )
    sample: bool = Field(
        default=True,
        description=(
            "Describe the content of columns in prompts: frequent values, formats, keys of JSON."
        ),
    )
    functions: frozenset[str] = Field(
        default=frozenset(),
        description=(
            "Functions that `query` may call in addition to the known functions; "
            "patterns such as `st_*` are allowed."
        ),
    )
    role: str | None = Field(
        default=None, description=("PostgreSQL: the role that `query` takes on (SET LOCAL ROLE).")
    )
    create: bool = Field(default=False, description="Create a missing file of SQLite or DuckDB.")

    attach: dict[str, LocalPath] = Field(
        default_factory=dict[str, str],
        description=(
            "SQLite: other files that `query` may read, by schema name: `{archive = "
            '"old.db"}` for archive.orders.'
        ),
    )

    @field_validator("attach")
    @classmethod
    def _check_attached_names(cls, value: dict[str, str]) -> dict[str, str]:
        # SQLite itself uses the names ``main`` and ``temp``.
        for name in value:
            if not (name.isascii() and name.isidentifier()) or name.lower() in ("main", "temp"):
                raise ValueError(f"{name!r} is not a name for an attached file")
        return value

    @field_validator("url", mode="before")
    @classmethod
    def _resolve_path_in_url(cls, value: Any) -> Any:
        """Resolve a relative path in the URL of a file against the folder of ``delf.toml``."""
        folder = folder_of(value)  # a value of delf.toml is a str that knows its folder
        if folder is None:
            return value
        scheme, separator, path = str(value).strip().partition(":///")
        if not separator or scheme.lower().partition("+")[0] not in _FILE_SCHEMES:
            return value
        file, question_mark, options = path.partition("?")
        if file in ("", ":memory:"):
            return value
        return f"{scheme}:///{quote(beside(folder, unquote(file)))}{question_mark}{options}"

    @field_validator("database", mode="before")
    @classmethod
    def _resolve_database_path(cls, value: Any, info: ValidationInfo) -> Any:
        """Resolve a relative path of a database file against the folder of ``delf.toml``."""
        folder = folder_of(value)  # a value of delf.toml is a str that knows its folder
        if (
            folder is None
            or info.data.get("db_type") not in _FILE_SCHEMES
            or value in ("", ":memory:")
        ):
            return value
        return beside(folder, value)
