"""``delf inspect CONNECTION``: the actions of a connection, with or without credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from delf.errors import DelfError
from delf_cli import complete
from delf_cli.as_json import as_json_option
from delf_cli.state import State, state_of

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.settings import PluginSettings
    from delf.tools.action import Action


_SECTIONS: Final = ("agent", "connections", "plugins")


class _ConnectionRow(TypedDict):
    """The JSON of ``delf inspect`` without ``--verbose``.

    Args:
        tool: The name in scripts.
        type: The name of the connection's type.
        description: A short description of the connection.
        methods: The actions.
        total: The number of the connection's actions.
        note: Why only the connection's type could be shown, or why tasks cannot use the connection;
            None if there is no such problem.
        notices: The connection's notes about itself, such as a tool that it left out.
    """

    tool: str
    type: str
    description: str
    methods: list[dict[str, Any]]
    total: int
    note: str | None
    notices: list[str]


class _VerboseRow(_ConnectionRow):
    """The JSON of ``delf inspect --verbose``.

    Args:
        settings: The settings of the connection's type.
    """

    settings: list[dict[str, Any]]


@click.command("inspect")
@click.argument("connection", required=False, shell_complete=complete.connections)
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of CONNECTION, such as url=… May be repeated.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also show parameters and settings.")
@as_json_option(_ConnectionRow)
@click.pass_context
def inspect(
    ctx: click.Context,
    connection: str | None,
    overrides: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """Show the actions of CONNECTION, a name in delf.toml or a type such as sql.

    If its credentials are missing, only its type is shown. Without CONNECTION, the connections of
    delf.toml are listed.
    """
    state = state_of(ctx)
    if connection is None:
        _list_connections(state, as_json=as_json)
        return
    data = _describe(state, connection, overrides)
    if as_json:
        from delf_cli.output import json_text

        shown_data = data if verbose else _without_details(data)
        click.echo(json_text(state.redact_data(shown_data), indent=2))
        return
    for line in _as_text(data, verbose=verbose):
        click.echo(state.redact(line))


def _list_connections(state: State, *, as_json: bool) -> None:
    rows = [
        {"name": name, "type": entry.type}
        for name, entry in state.load_project().connections.items()
    ]
    if as_json:
        from delf_cli.output import json_text

        click.echo(json_text(rows, indent=2))
        return
    for row in rows:
        click.echo(f"{row['name']} ({row['type']})")
    if not rows:
        hint = "delf inspect TYPE shows the actions of a type, such as sql"
        click.echo(f"no connection is in delf.toml; {hint}", err=True)


def _describe(state: State, name: str, overrides: Sequence[str]) -> _VerboseRow:
    """Return a connection's actions, settings and notices as data.

    If the connection cannot be made, the data describe its type, and ``note`` says why.

    Raises:
        DelfError: If no such connection type exists, or if a connection of delf.toml cannot be made
            and its type, such as ``mcp``, declares no actions.
    """
    from delf.protocols.connection import SupportsNotices

    project = state.load_project([_full_setting_path(text, name) for text in overrides])
    host = state.discover(project.environ)
    entry = project.connections.get(name)
    type_name = entry.type if entry is not None else name
    try:
        connection = project.connector(host)(name)
        # Do this before asking the server, because its error may quote a secret of the settings.
        state.hide_secrets_of(getattr(connection, "settings", None))
        actions = asyncio.run(_actions_of(connection))
    except DelfError as error:
        row = _describe_type(host, type_name, name, error)
        if entry is not None and not row["methods"]:
            raise
        return row
    row = _row(connection, actions, connection.name, type_name, connection.summary)
    if isinstance(connection, SupportsNotices):
        row["notices"] = list(connection.notices())
    if entry is not None:
        row["note"] = _why_unusable(connection, actions)
    return row


def _describe_type(host: PluginHost, type_name: str, name: str, error: DelfError) -> _VerboseRow:
    """Return data about the type of a connection that cannot be made because of ``error``.

    Raises:
        DelfError: ``error``, if there is no such type.
    """
    from delf.specs import ConnectionSpec
    from delf.tools.action import actions_of

    try:
        spec = host.spec(ConnectionSpec, type_name)
        connection_type: Any = host.resolve(spec)
    except DelfError:
        raise error from None
    actions = ()
    if isinstance(connection_type, type):
        actions = actions_of(connection_type, None, name)
    row = _row(connection_type, actions, name, type_name, spec.summary)
    row["note"] = f"this is its type; the connection itself cannot be made: {_with_hint(error)}"
    return row


def _row(
    connection_or_type: Any, actions: Sequence[Action], name: str, type_name: str, summary: str
) -> _VerboseRow:
    """Return the data of a connection or a connection type; callers add notes and notices."""
    return {
        "tool": name,
        "type": type_name,
        "description": summary,
        "methods": [
            {**action.describe(verbose=True), **_permissions(connection_or_type, action)}
            for action in actions
        ],
        "total": len(actions),
        "note": None,
        "notices": [],
        "settings": list(_settings(connection_or_type, name)),
    }


def _why_unusable(connection: Any, actions: Sequence[Action]) -> str | None:
    """Return why tasks cannot use a connection of ``delf.toml``; None if they can."""
    from delf_engine.toolset import check_connection_names, check_permissions

    try:
        check_connection_names([connection])
        check_permissions(connection, actions)
    except DelfError as error:
        return f"tasks cannot use the connection: {_with_hint(error)}"
    return None


def _with_hint(error: DelfError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _without_details(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a connection's data, leaving out its settings and the details of its actions."""
    details = {"description", "signature", "parameters"}
    shortened = {**data, "methods": [_without_keys(method, details) for method in data["methods"]]}
    return _without_keys(shortened, {"settings"})


def _without_keys(data: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in keys}


def _full_setting_path(override: str, name: str) -> str:
    """Expand ``url=…`` to ``connections.NAME.url=…``.

    Return an override that already begins with a section, such as ``plugins.``, unchanged.
    """
    key = override.partition("=")[0]
    first_name = key.partition(".")[0].strip()
    if first_name in _SECTIONS:
        return override
    return f"connections.{name}.{override.lstrip()}"


async def _actions_of(connection: Any) -> Sequence[Action]:
    """Return the actions of a connection, and close the connection."""
    from delf_engine.bounded import START_SECONDS, within

    owner = f"the connection {connection.name!r}"
    try:
        return await within(START_SECONDS, owner, "actions", connection.actions)
    finally:
        if hasattr(connection, "aclose"):
            await connection.aclose()


def _permissions(connection: Any, action: Action) -> dict[str, bool]:
    """Return whether scripts may call an action, and whether the calls need approval.

    ``allowed``: scripts may call the action; ``asks``: each call needs approval; ``may_ask``: some
    or all calls need approval.

    Args:
        connection: The connection, or a connection's class, which has no ``allow`` and ``confirm``.
        action: The action.
    """
    from delf.protocols.connection import SupportsCheck
    from delf.tools.permissions import is_allowed, needs_confirmation

    allow = confirm = None
    if not isinstance(connection, type):
        allow = getattr(connection, "allow", None)
        confirm = getattr(connection, "confirm", None)
    asks = needs_confirmation(confirm, action)
    return {
        "allowed": is_allowed(allow, action),
        "asks": asks,
        "may_ask": asks or isinstance(connection, SupportsCheck),
    }


def _settings(connection: Any, connection_name: str) -> Iterator[dict[str, Any]]:
    """Yield each setting of a connection or connection class, with its environment variable."""
    settings: type[PluginSettings] | None = getattr(connection, "Settings", None)
    if settings is None:
        return
    prefix = f"DELF_{connection_name.replace('-', '_').upper()}"
    for name, field in settings.model_fields.items():
        yield {
            "name": name,
            "variable": f"{prefix}_{name.upper()}",
            "required": field.is_required(),
            "description": field.description or "",
        }


def _permission_text(method: Mapping[str, Any]) -> str:
    if not method["allowed"]:
        return "not allowed"
    if method["asks"]:
        return "asks"
    return "may ask" if method["may_ask"] else "free"


def _as_text(data: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    """Yield the lines that show a connection's data, from :func:`_describe`, at the terminal."""
    from delf_cli.formats import format_count
    from delf_cli.streams import wrap_text
    from delf_cli.tables import table

    type_note = f" ({data['type']})" if data["type"] != data["tool"] else ""
    description = wrap_text(f": {data['description']}", head=len(data["tool"] + type_note))
    yield f"{click.style(data['tool'], bold=True)}{type_note}{description}"
    yield ""
    rows: list[tuple[str, ...]] = []
    for method in data["methods"]:
        summary = method["description"].split("\n", 1)[0]
        rows.append((method["name"], method["effect"], _permission_text(method), summary))
    yield from table(rows, ("action", "effect", "use", "what it does"), whole=True)
    if rows:
        yield ""
    else:
        yield "It has no actions." if data["note"] is None else "Its actions are not known yet."
    if verbose:
        yield from _details(data)
    count = format_count(len(rows), "action")
    yield count if verbose else f"{count}; --verbose shows parameters"
    notes = [note for note in (data["note"], *data["notices"]) if note]
    if notes:
        yield ""
    label = click.style("note:", fg="yellow", bold=True)
    for note in notes:
        yield f"{label} {wrap_text(note, head=len('note: '))}"


def _details(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines about the parameters of a connection's actions, and about its settings."""
    from delf_cli.streams import wrap_text
    from delf_cli.tables import table

    for method in data["methods"]:
        yield click.style(wrap_text(method["signature"], indent=8), bold=True)
        yield f"    {wrap_text(method['description'], indent=4)}"
        for parameter in method["parameters"]:
            if "description" in parameter:
                text = f"{parameter['name']}: {parameter['description']}"
                yield f"    {wrap_text(text, indent=4)}"
        yield ""
    settings = [(s["name"], s["variable"], s["description"]) for s in data["settings"]]
    yield from table(settings, ("setting", "variable", "what it is"), whole=True)
    if settings:
        yield ""
