"""``delf chat list | delete | prune``: the conversations that are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from delf.cli.output import counted, json_text
from delf.cli.state import state_of
from delf.commands import Pruning, prune_options
from delf.errors import DelfError, did_you_mean
from delf.terminal import visible

if TYPE_CHECKING:
    from delf.chat import Chat
    from delf.protocols.conversation import ConversationRecord

F = TypeVar("F", bound=Callable[..., Any])

_ALL: Final = 2**31 - 1


def _shared(command: F) -> F:
    """Give a command the options that all of these have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write it as JSON."),
        click.option(
            "--namespace",
            default="default",
            show_default=True,
            metavar="NAME",
            help="Those of Chat(namespace=NAME).",
        ),
        click.option(
            "--set",
            "overrides",
            metavar="KEY=VALUE",
            multiple=True,
            help="A setting, as plugins.journal-sql.url=… May be repeated.",
        ),
    ):
        command = option(command)
    return command


def _open(ctx: click.Context, overrides: Sequence[str], namespace: str) -> Chat:
    """A chat of a namespace, kept where `delf chat` keeps its own."""
    from delf.chat import Chat
    from delf.chat.place import Surroundings

    state = state_of(ctx)
    project = state.load_project(overrides)
    chat = Chat(persist=True, namespace=namespace)
    chat.attach(
        Surroundings(
            host=state.discover(project.environ),
            plugin_options=project.plugin_options,
            environ=project.environ,
        )
    )
    return chat


@click.command("list")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="At most so many.",
)
@_shared
@click.pass_context
def list_command(
    ctx: click.Context, limit: int, overrides: tuple[str, ...], namespace: str, as_json: bool
) -> None:
    """List the conversations, the newest first.

    \b
    delf chat list --limit 5
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf.cli.slash import conversation_lines

    with _open(ctx, overrides, namespace) as chat:
        found = chat.conversations(limit)
    if as_json:
        click.echo(json_text([asdict(record) for record in found], indent=2))
        return
    for line in conversation_lines(found):
        click.echo(line.removeprefix("  "))
    if not found:
        click.echo("There is no conversation yet", err=True)


@click.command("delete")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_shared
@click.pass_context
def delete(
    ctx: click.Context,
    ids: tuple[str, ...],
    overrides: tuple[str, ...],
    namespace: str,
    as_json: bool,
) -> None:
    """Forget conversations with all their messages, and their summaries.

    \b
    delf chat delete 2026-11-22-8b9797
    """  # noqa: D301 - click's mark for lines that stay as they are
    with _open(ctx, overrides, namespace) as chat:
        known = {record.conversation: record for record in chat.conversations(_ALL)}
        for name in ids:
            if name not in known:
                raise DelfError(
                    f"there is no conversation {name!r}{did_you_mean(name, known)}",
                    hint="delf chat list shows them; nothing was forgotten",
                )
        chosen = [known[name] for name in dict.fromkeys(ids)]
        for record in chosen:
            chat.clear(record.conversation)
    _tell(chosen, as_json=as_json)


@click.command("prune")
@prune_options(
    older_than="Forget those in which nothing was said for so long.", keep="Keep the newest N."
)
@_shared
@click.pass_context
def prune(
    ctx: click.Context,
    pruning: Pruning,
    overrides: tuple[str, ...],
    namespace: str,
    as_json: bool,
) -> None:
    """Forget old conversations with all their messages, and their summaries.

    \b
    delf chat prune --older-than 90d --dry-run
    """  # noqa: D301 - click's mark for lines that stay as they are
    with _open(ctx, overrides, namespace) as chat:
        found = chat.prune(pruning.older_than, pruning.keep, dry_run=pruning.dry_run)
    _tell(found, as_json=as_json, dry_run=pruning.dry_run)


def _tell(found: Sequence[ConversationRecord], *, as_json: bool, dry_run: bool = False) -> None:
    """Write which conversations were forgotten, or would be."""
    messages = sum(record.messages for record in found)
    if as_json:
        names = [record.conversation for record in found]
        data = {"dry_run": dry_run, "conversations": names, "messages": messages}
        click.echo(json_text(data, indent=2))
        return
    if dry_run:
        for record in found:
            click.echo(visible(" ".join(record.conversation.split())))
    verb = "would be forgotten" if dry_run else "forgotten"
    count = counted(len(found), "conversation")
    click.echo(f"{count} with {counted(messages, 'message')} {verb}", err=dry_run)
