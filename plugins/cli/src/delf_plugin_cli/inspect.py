"""``delf inspect CONNECTION``: what a connection can do, with or without its credentials."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from delf.errors import DelfError
from delf_cli import complete
from delf_cli.state import State, state_of

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.settings import PluginSettings
    from delf.tools.action import Action


_SECTIONS: Final = ("agent", "connections", "plugins")


@dataclass(frozen=True, kw_only=True)
class _Look:
    """The findings about a connection.

    Args:
        name: The connection's name in scripts.
        type: The name of its type.
        summary: What it is.
        kind: Its class.
        actions: What it can do.
        instance: The connection itself, where it could be made.
        note: Why it could not be.
    """

    name: str
    type: str
    summary: str
    kind: Any
    actions: Sequence[Action]
    instance: Any = None
    note: str | None = None


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
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@click.pass_context
def inspect(
    ctx: click.Context,
    connection: str | None,
    overrides: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """Show the actions of CONNECTION: one of delf.toml, or a type such as sql.

    If its credentials are missing, only its type is shown. Without CONNECTION, those of delf.toml
    are listed.
    """
    state = state_of(ctx)
    if connection is None:
        _list(state, as_json=as_json)
        return
    look = _look(state, connection, overrides)
    state.hide_secrets_of(getattr(look.instance, "settings", None))
    if as_json:
        from delf_cli.output import json_text

        data = state.clean_data(_as_data(look, verbose=verbose))
        click.echo(json_text(data, indent=2))
        return
    for line in _as_text(look, verbose=verbose):
        click.echo(state.clean(line))


def _list(state: State, *, as_json: bool) -> None:
    """List the project's connections."""
    found = [
        {"name": name, "type": entry.type}
        for name, entry in state.load_project().connections.items()
    ]
    if as_json:
        from delf_cli.output import json_text

        click.echo(json_text(found, indent=2))
        return
    for each in found:
        click.echo(f"{each['name']} ({each['type']})")
    if not found:
        told = "no connection is in delf.toml; delf inspect TYPE shows what one could do, as sql"
        click.echo(told, err=True)


def _look(state: State, name: str, overrides: Sequence[str]) -> _Look:
    project = state.load_project([_of_connection(text, name) for text in overrides])
    host = state.discover(project.environ)
    entry = project.connections.get(name)
    type_name = entry.type if entry is not None else name
    try:
        instance = project.connector(host)(name)
        actions = asyncio.run(_actions(instance))
    except DelfError as error:
        return _look_at_type(host, name, type_name, error)
    return _Look(
        name=instance.name,
        type=type_name,
        summary=instance.summary,
        kind=type(instance),
        actions=actions,
        instance=instance,
    )


def _of_connection(override: str, name: str) -> str:
    """``url=…`` as the connection's own setting; whole paths stay as they are."""
    if override.partition("=")[0].partition(".")[0].strip() in _SECTIONS:
        return override
    return f"connections.{name}.{override.lstrip()}"


async def _actions(instance: Any) -> Sequence[Action]:
    try:
        return await instance.actions()
    finally:
        if hasattr(instance, "aclose"):
            await instance.aclose()


def _look_at_type(host: PluginHost, name: str, type_name: str, reason: DelfError) -> _Look:
    """Look at a connection through its class.

    Raises:
        DelfError: The reason, when there is no such type either.
    """
    from delf.specs import ConnectionSpec
    from delf.tools.action import actions_of

    try:
        spec = host.spec(ConnectionSpec, type_name)
        kind = host.resolve(spec)
    except DelfError:
        raise reason from None
    hint = f" ({reason.hint})" if reason.hint else ""
    return _Look(
        name=name,
        type=type_name,
        summary=spec.summary,
        kind=kind,
        actions=actions_of(kind, None, name) if isinstance(kind, type) else (),
        note=f"this is its type; the connection itself cannot be made: {reason.message}{hint}",
    )


def _as_data(look: _Look, *, verbose: bool) -> dict[str, Any]:
    methods: list[dict[str, Any]] = [
        {**action.describe(verbose=verbose), **_permissions(look, action)}
        for action in look.actions
    ]
    data: dict[str, Any] = {
        "tool": look.name,
        "type": look.type,
        "description": look.summary,
        "methods": methods,
        "total": len(methods),
        "note": look.note,
        "notices": _notices(look),
    }
    return {**data, "settings": list(_settings(look))} if verbose else data


def _notices(look: _Look) -> list[str]:
    """Return the connection's own notices, such as that it left something out."""
    from delf.protocols.connection import SupportsNotices

    return list(look.instance.notices()) if isinstance(look.instance, SupportsNotices) else []


def _permissions(look: _Look, action: Action) -> dict[str, bool]:
    from delf.protocols.connection import SupportsCheck
    from delf.tools.permissions import is_allowed, needs_confirmation

    asks = needs_confirmation(getattr(look.instance, "confirm", None), action)
    checks = isinstance(look.instance if look.instance is not None else look.kind, SupportsCheck)
    return {
        "allowed": is_allowed(getattr(look.instance, "allow", None), action),
        "asks": asks,
        "may_ask": asks or checks,
    }


def _settings(look: _Look) -> Iterator[dict[str, Any]]:
    settings: type[PluginSettings] | None = getattr(look.kind, "Settings", None)
    for name, field in settings.model_fields.items() if settings is not None else ():
        yield {
            "name": name,
            "variable": f"DELF_{look.name.replace('-', '_').upper()}_{name.upper()}",
            "required": field.is_required(),
            "description": field.description or "",
        }


def _as_text(look: _Look, *, verbose: bool) -> Iterator[str]:
    from delf_cli.output import counted
    from delf_cli.tables import table

    of = f" ({look.type})" if look.type != look.name else ""
    yield f"{click.style(look.name, bold=True)}{of}: {look.summary}"
    yield ""
    rows: list[tuple[str, ...]] = []
    for action in look.actions:
        allowed = _permissions(look, action)
        use = "asks" if allowed["asks"] else "may ask" if allowed["may_ask"] else "free"
        use = use if allowed["allowed"] else "not allowed"
        rows.append((action.name, action.effect, use, action.summary.split("\n", 1)[0]))
    yield from table(rows, ("action", "effect", "use", "what it does"), whole=True)
    yield "" if rows else "It has no actions."
    if verbose:
        yield from _details(look)
    yield counted(len(rows), "action") + ("" if verbose else "; --verbose shows parameters")
    notes = [*([look.note] if look.note else ()), *_notices(look)]
    if notes:
        yield ""
    yield from (f"{click.style('note:', fg='yellow', bold=True)} {note}" for note in notes)


def _details(look: _Look) -> Iterator[str]:
    from delf_cli.tables import table

    for action in look.actions:
        yield click.style(f"{action.name}{action.signature}", bold=True)
        yield f"    {action.summary}"
        for parameter in action.parameters:
            if parameter.doc:
                yield f"    {parameter.name}: {parameter.doc}"
        yield ""
    settings = list(_settings(look))
    rows = [(item["name"], item["variable"], item["description"]) for item in settings]
    yield from table(rows, ("setting", "variable", "what it is"), whole=True)
    if rows:
        yield ""
