"""``delf chat list | delete | prune``: the conversations that are kept, of every namespace."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from delf.errors import DelfError, did_you_mean
from delf.plugins.journals import need_durable_journal
from delf_cli.journals import work_with
from delf_cli.output import counted, json_text
from delf_cli.pruning import Pruning, prune_options
from delf_cli.state import state_of
from delf_cli.tables import one_line

if TYPE_CHECKING:
    from delf.protocols.conversation import ConversationRecord, SupportsConversations

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_ALL: Final = 2**31 - 1
_USUAL: Final = "default"
"""The namespace of `delf chat`, which a list does not mention where there is no other."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A conversation, and the namespace that it is in."""

    namespace: str
    record: ConversationRecord

    def data(self) -> dict[str, Any]:
        return {"namespace": self.namespace, **asdict(self.record)}


def _shared(command: F) -> F:
    """Give a command the options that all of these have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Write it as JSON."),
        click.option(
            "--namespace",
            metavar="NAME",
            help="Only conversations of Chat(namespace=NAME).  [default: all]",
        ),
        click.option(
            "--set",
            "overrides",
            metavar="KEY=VALUE",
            multiple=True,
            help="A setting, such as plugins.journal-sql.url=… May be repeated.",
        ),
    ):
        command = option(command)
    return command


def _with(
    ctx: click.Context,
    overrides: Sequence[str],
    work: Callable[[SupportsConversations], Awaitable[T]],
) -> T:
    """Work with the journal in which `delf chat` keeps its conversations, then close it."""
    from delf.engine.agent_context import AgentContext

    state = state_of(ctx)
    project = state.load_project(overrides)
    context = AgentContext.of(project, state.discover(project.environ))
    need_durable_journal(context.host, "`delf chat` with conversations that are kept")
    return work_with(context.open_conversations(), work)


async def _namespaces(journal: SupportsConversations, only: str | None) -> Sequence[str]:
    """The namespaces to look at."""
    from delf_chat.checks import check_name

    if only is not None:
        return [check_name("--namespace", only)]
    return await journal.namespaces()


async def _find(journal: SupportsConversations, only: str | None, limit: int) -> list[_Kept]:
    """Conversations that have messages, the newest first."""
    found = [
        _Kept(name, record)
        for name in await _namespaces(journal, only)
        for record in await journal.conversations(name).find(limit)
    ]
    return sorted(found, key=lambda kept: kept.record.updated_at, reverse=True)[:limit]


@click.command("list")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="The most conversations to show.",
)
@_shared
@click.pass_context
def list_command(
    ctx: click.Context, limit: int, overrides: tuple[str, ...], namespace: str | None, as_json: bool
) -> None:
    """List the conversations, the newest first.

    \b
    delf chat list --limit 5
    """  # noqa: D301 - click's mark for lines that stay as they are
    from delf_chat.slash import conversation_lines

    found = _with(ctx, overrides, lambda journal: _find(journal, namespace, limit))
    if as_json:
        click.echo(json_text([kept.data() for kept in found], indent=2))
        return
    lines = [line[2:] for line in conversation_lines([kept.record for kept in found])]
    for line in _placed(found, lines):
        click.echo(line)
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
    namespace: str | None,
    as_json: bool,
) -> None:
    """Forget conversations with all their messages, and their summaries.

    \b
    delf chat delete 2026-11-22-8b9797
    """  # noqa: D301 - click's mark for lines that stay as they are

    async def work(journal: SupportsConversations) -> list[_Kept]:
        known = await _find(journal, namespace, _ALL)
        chosen = [_the_one(name, known) for name in dict.fromkeys(ids)]
        for kept in chosen:
            await journal.conversations(kept.namespace).clear(kept.record.conversation)
        return chosen

    _tell(_with(ctx, overrides, work), as_json=as_json)


def _the_one(name: str, known: Sequence[_Kept]) -> _Kept:
    """The conversation of an id.

    Raises:
        DelfError: When there is none, or one in each of several namespaces.
    """
    found = [kept for kept in known if kept.record.conversation == name]
    if not found:
        close = did_you_mean(name, {kept.record.conversation for kept in known})
        raise DelfError(
            f"there is no conversation {name!r}{close}",
            hint="delf chat list shows them; nothing was forgotten",
        )
    if len(found) > 1:
        places = ", ".join(sorted(kept.namespace for kept in found))
        raise DelfError(
            f"more than one namespace has a conversation {name!r}: {places}",
            hint="--namespace says which; nothing was forgotten",
        )
    return found[0]


@click.command("prune")
@prune_options(
    older_than="Forget conversations without a message for this time.",
    keep="Keep the newest N of each namespace.",
)
@_shared
@click.pass_context
def prune(
    ctx: click.Context,
    pruning: Pruning,
    overrides: tuple[str, ...],
    namespace: str | None,
    as_json: bool,
) -> None:
    """Forget old conversations with all their messages, and their summaries.

    \b
    delf chat prune --older-than 90d --dry-run
    """  # noqa: D301 - click's mark for lines that stay as they are
    before = None if pruning.older_than is None else time.time() - pruning.older_than

    async def work(journal: SupportsConversations) -> list[_Kept]:
        gone: list[_Kept] = []
        for name in await _namespaces(journal, namespace):
            store = journal.conversations(name)
            records = await store.prune(before, pruning.keep, dry_run=pruning.dry_run)
            gone += [_Kept(name, record) for record in records]
        return gone

    _tell(_with(ctx, overrides, work), as_json=as_json, dry_run=pruning.dry_run)


def _tell(found: Sequence[_Kept], *, as_json: bool, dry_run: bool = False) -> None:
    """Write which conversations were forgotten, or would be."""
    messages = sum(kept.record.messages for kept in found)
    if as_json:
        data = {
            "dry_run": dry_run,
            "conversations": [kept.data() for kept in found],
            "messages": messages,
        }
        click.echo(json_text(data, indent=2))
        return
    if dry_run:
        names = [one_line(kept.record.conversation) for kept in found]
        for line in _placed(found, names):
            click.echo(line)
    verb = "would be forgotten" if dry_run else "forgotten"
    count = counted(len(found), "conversation")
    click.echo(f"{count} with {counted(messages, 'message')} {verb}", err=dry_run)


def _placed(found: Sequence[_Kept], lines: Sequence[str]) -> list[str]:
    """Lines about conversations; with their namespaces if one is not the usual one."""
    if all(kept.namespace == _USUAL for kept in found):
        return list(lines)
    places = [one_line(kept.namespace) for kept in found]
    width = max(map(len, places))
    return [f"{place:<{width}}  {line}" for place, line in zip(places, lines, strict=True)]
