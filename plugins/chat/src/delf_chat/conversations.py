"""``delf chat list | delete | prune``: the conversations that are kept in a namespace."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import click

from delf.errors import DelfError, did_you_mean
from delf.protocols.conversation import ConversationRecord, user_of
from delf_cli.as_json import as_json_option, limit_option
from delf_cli.formats import format_count
from delf_cli.journals import CurrentProject, work_with
from delf_cli.output import json_text
from delf_cli.pruning import Pruning, prune_options
from delf_cli.state import state_of
from delf_cli.tables import one_line
from delf_engine.journal.factory import need_durable_journal

if TYPE_CHECKING:
    from delf.protocols.conversation import ConversationStore
    from delf_cli.session import Setup

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_NO_LIMIT: Final = 2**31 - 1
_NAMESPACE: Final = "default"
"""The namespace of the conversations of `delf chat`."""


class _RemovedRow(TypedDict):
    """The JSON of a command that removes conversations.

    Args:
        dry_run: True if nothing was deleted.
        conversations: The conversations, as in ``delf chat list``.
        messages: The number of their messages.
    """

    dry_run: bool
    conversations: list[dict[str, Any]]
    messages: int


def _shared_options(row: type) -> Callable[[F], F]:
    """Return a decorator that adds the options ``--json`` and ``--namespace`` to a command.

    Args:
        row: The class that describes the JSON that the command prints with ``--json``.
    """

    def add(command: F) -> F:
        command = as_json_option(row)(command)
        return click.option(
            "--namespace",
            metavar="NAME",
            default=_NAMESPACE,
            show_default=True,
            help="The namespace, as of Chat(namespace=NAME).",
        )(command)

    return add


def _with_conversations(
    ctx: click.Context, namespace: str, work: Callable[[ConversationStore], Awaitable[T]]
) -> T:
    """Run a function with the store of a namespace's conversations, then close the journal."""
    from delf_chat.checks import check_name
    from delf_engine.agent_context import AgentContext

    check_name("--namespace", namespace)
    state = state_of(ctx)
    project = state.load_project()
    context = AgentContext.of(project, state.discover(project.environ))
    need_durable_journal(context.host, "`delf chat` with conversations that are kept")
    return work_with(
        context.open_conversation_journal(), lambda journal: work(journal.conversations(namespace))
    )


async def newest_of_project(setup: Setup, project: CurrentProject) -> str | None:
    """Return the id of a project's newest conversation; None if the project has none.

    A conversation belongs to the project in which the task of its newest message ran. If this task
    is not known any more, the conversation belongs to no project. Conversations of a server's users
    are left out.

    Args:
        setup: The setup of the chat, with the journal.
        project: The project; outside of a project, all conversations count.
    """
    from delf_engine.agent_context import AgentContext

    context = AgentContext.of(setup.project, setup.host)
    async with aclosing(context.open_conversation_journal()) as journal:
        records = await journal.conversations(_NAMESPACE).find(_NO_LIMIT)
    owns = functools.cache(project.owns)
    for record in records:
        if user_of(record.conversation) is None and owns(record.folder):
            return record.conversation
    return None


@click.command("list")
@limit_option(100, "The most conversations to show.")
@_shared_options(ConversationRecord)
@click.pass_context
def list_command(ctx: click.Context, limit: int, namespace: str, as_json: bool) -> None:
    """List the conversations, newest first.

    \b
    delf chat list --limit 5
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_chat.slash import conversation_lines

    records = _with_conversations(ctx, namespace, lambda store: store.find(limit))
    if as_json:
        click.echo(json_text([asdict(record) for record in records], indent=2))
        return
    for line in conversation_lines(records):
        click.echo(line)
    if not records:
        click.echo("There is no conversation yet", err=True)


@click.command("delete")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_shared_options(_RemovedRow)
@click.pass_context
def delete(ctx: click.Context, ids: tuple[str, ...], namespace: str, as_json: bool) -> None:
    """Remove conversations with all their messages and summaries.

    \b
    delf chat delete 2026-11-22-8b9797
    """  # noqa: D301 - click's mark for lines that stay as they are

    async def work(store: ConversationStore) -> list[ConversationRecord]:
        records = {record.conversation: record for record in await store.find(_NO_LIMIT)}
        for name in ids:
            if name not in records:
                raise DelfError(
                    f"there is no conversation {name!r}{did_you_mean(name, records)}",
                    hint="delf chat list shows them; nothing was forgotten",
                )
        removed = [records[name] for name in dict.fromkeys(ids)]
        for record in removed:
            await store.clear(record.conversation)
        return removed

    _print_removed(_with_conversations(ctx, namespace, work), as_json=as_json)


@click.command("prune")
@prune_options(
    older_than_help="Forget conversations without a message for this time.",
    keep_help="Keep the newest N.",
)
@_shared_options(_RemovedRow)
@click.pass_context
def prune(ctx: click.Context, pruning: Pruning, namespace: str, as_json: bool) -> None:
    """Remove old conversations with all their messages and summaries.

    \b
    delf chat prune --older-than 90d --dry-run
    """  # noqa: D301 - click's mark for lines that stay as they are
    before = None if pruning.older_than is None else time.time() - pruning.older_than
    removed = _with_conversations(
        ctx, namespace, lambda store: store.prune(before, pruning.keep, dry_run=pruning.dry_run)
    )
    _print_removed(removed, as_json=as_json, dry_run=pruning.dry_run)


def _print_removed(
    removed: Sequence[ConversationRecord], *, as_json: bool, dry_run: bool = False
) -> None:
    """Print the conversations that were removed, or would be removed in a dry run."""
    messages = sum(record.messages for record in removed)
    if as_json:
        records = [asdict(record) for record in removed]
        row = _RemovedRow(dry_run=dry_run, conversations=records, messages=messages)
        click.echo(json_text(row, indent=2))
        return
    if dry_run:
        for record in removed:
            click.echo(one_line(record.conversation))
    verb = "would be forgotten" if dry_run else "forgotten"
    count = format_count(len(removed), "conversation")
    # A dry run writes only ids to the standard output, for scripts.
    click.echo(f"{count} with {format_count(messages, 'message')} {verb}", err=dry_run)
