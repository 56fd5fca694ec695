"""``delf memory``: list, add, search and remove facts."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

import click

from delf import plugin_context
from delf.errors import ConfigurationError
from delf.specs import MemorySpec
from delf.terminal import wrap_text
from delf_cli.as_json import as_json_option
from delf_cli.confirming import confirm
from delf_cli.json_encoding import encode_json
from delf_cli.state import State, state_of
from delf_cli.tables import one_line
from delf_memory_semantic.database import StoredFact
from delf_memory_semantic.delfhos import facts_of
from delf_memory_semantic.store import SemanticStore
from delf_memory_semantic.texts import is_file_name, read_file, split_into_pieces

if TYPE_CHECKING:
    from delf_engine.project.project import Project

T = TypeVar("T")

# The number of seconds after which a command says that it waits for the model.
_NOTICE_DELAY_SECONDS: Final = 1.0
_PLUGIN: Final = "memory-semantic"
_STORE: Final = "semantic"
_STANDARD_INPUT: Final = "standard input"


class _FactRow(TypedDict):
    """The JSON of a fact.

    Args:
        id: The number of the fact in the list.
        content: The fact.
        source: The source of the fact, if known.
        saved_at: The time at which the fact was saved, in ISO 8601.
    """

    id: int
    content: str
    source: str | None
    saved_at: str


class _RememberedRow(TypedDict):
    """The JSON of a command that adds facts.

    Args:
        remembered: The number of new facts.
    """

    remembered: int


class _ForgottenRow(TypedDict):
    """The JSON of ``delf memory forget``.

    Args:
        forgotten: The number of facts that are gone.
    """

    forgotten: int


@click.group("memory", invoke_without_command=True)
@click.option("--namespace", metavar="NAME", help="The memory's name; by default the agent's.")
@as_json_option(_FactRow, words="List as JSON, where no command is given.")
@click.pass_context
def memory(ctx: click.Context, namespace: str | None, *, as_json: bool) -> None:
    """Show, add, search and forget remembered facts.

    Without a command it lists them.

    \b
    delf memory add notes.md
    delf memory search "where is the office"
    """  # noqa: D301 - click's mark for lines that stay as they are
    ctx.obj = _ProjectMemory(state_of(ctx), namespace)
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_command, as_json=as_json)


class _ProjectMemory:
    """The memory store of the project in this folder, opened for each use."""

    def __init__(self, state: State, namespace: str | None) -> None:
        project = state.load_project()
        _check_store(state, project)
        self._context = plugin_context(
            project, namespace=namespace or project.agent.memory_config.namespace
        )
        self._options = project.plugin_options.get(_PLUGIN, {})

    def use(self, work: Callable[[SemanticStore], Awaitable[T]]) -> T:
        """Open the store, do work with it, close it, and return the result of the work.

        If the work waits for the embedding model to load, tell the user so.
        """

        async def main() -> T:
            store = SemanticStore(self._context, **self._options)
            try:
                return await _await_with_loading_notice(store, work(store))
            finally:
                await store.aclose()

        return asyncio.run(main())


async def _await_with_loading_notice(store: SemanticStore, work: Awaitable[T]) -> T:
    """Await work; if it takes long because the embedding model is loading, print a notice."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=_NOTICE_DELAY_SECONDS)
    if not task.done() and store.loading is not None:
        click.echo(f"loading the embedding model {store.loading} …", err=True)
    return await task


def _check_store(state: State, project: Project) -> None:
    """Raise if the project's memory is in another store than this plugin's."""
    name = project.agent.memory
    if name in (None, _STORE):
        return
    state.discover(project.environ).spec(MemorySpec, name)  # raises for an unknown store
    raise ConfigurationError(
        f"delf memory works on the store {_STORE}; this project's is {name}",
        hint=f"to use the store {_STORE} anyway, set DELF_MEMORY={_STORE} for this command",
    )


@memory.command("add")
@click.argument("texts", nargs=-1, required=True, metavar="TEXT|FILE…")
@click.option("--source", metavar="WORDS", help="The source of the text; a file is its own source.")
@as_json_option(_RememberedRow)
@click.pass_obj
def add(
    memory_store: _ProjectMemory, texts: Sequence[str], source: str | None, as_json: bool
) -> None:
    """Remember texts, or the contents of .txt and .md files; - reads standard input."""
    batches: list[tuple[list[str], str | None]] = []
    for text in texts:
        if text == "-":
            batches.append((split_into_pieces(sys.stdin.read()), source or _STANDARD_INPUT))
        elif is_file_name(text):
            batches.append((split_into_pieces(read_file(Path(text))), source or text))
        else:
            batches.append(([text], source))

    async def save(store: SemanticStore) -> None:
        for facts, origin in batches:
            await store.save(facts, origin)

    memory_store.use(save)
    count = sum(len(facts) for facts, _ in batches)
    _print_count(_RememberedRow(remembered=count), as_json)


@memory.command("search")
@click.argument("query")
@click.option("--top-k", type=click.IntRange(1, 1000), default=5, show_default=True, metavar="N")
@click.option("--threshold", type=click.FloatRange(0, 1), default=0.3, show_default=True)
@as_json_option(_FactRow)
@click.pass_obj
def search(
    memory_store: _ProjectMemory, query: str, top_k: int, threshold: float, as_json: bool
) -> None:
    """Find facts by words and by meaning, the best matches first."""
    facts = memory_store.use(lambda store: store.search(query, top_k, threshold))
    _print_facts(facts, as_json)
    if not facts:
        click.echo("nothing found; a lower --threshold finds weaker matches", err=True)


@memory.command("list")
@as_json_option(_FactRow)
@click.pass_obj
def list_command(memory_store: _ProjectMemory, as_json: bool) -> None:
    """List all facts with their numbers, oldest first."""
    facts = memory_store.use(lambda store: store.all())
    _print_facts(facts, as_json)
    if not facts:
        click.echo("Nothing is remembered yet: delf memory add TEXT", err=True)


@memory.command("forget")
@click.argument("numbers", type=int, nargs=-1, metavar="[NUMBER…]")
@click.option("--all", "everything", is_flag=True, help="Forget the whole namespace.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json_option(_ForgottenRow)
@click.pass_obj
def forget(
    memory_store: _ProjectMemory, numbers: Sequence[int], everything: bool, yes: bool, as_json: bool
) -> None:
    """Forget the facts with the given numbers, which ``delf memory list`` shows."""
    if everything == bool(numbers):  # both or neither
        raise click.UsageError("give the numbers of facts, or --all")
    facts = memory_store.use(lambda store: store.all())
    chosen = facts if everything else [fact for fact in facts if fact.id in numbers]
    missing = set(numbers) - {fact.id for fact in facts}
    if missing:
        raise click.ClickException(f"there is no fact {min(missing)}")
    if not confirm(f"Forget {len(chosen)} facts?", yes=yes):
        raise click.exceptions.Exit(1)

    async def remove(store: SemanticStore) -> int:
        if everything:
            await store.clear()
            return len(chosen)
        return await store.delete([fact.content for fact in chosen])

    count = memory_store.use(remove)
    _print_count(_ForgottenRow(forgotten=count), as_json)


@memory.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--from",
    "namespace",
    metavar="NAME",
    help="The namespace of Delfhos to import, if there are several.",
)
@as_json_option(_RememberedRow)
@click.pass_obj
def import_command(
    memory_store: _ProjectMemory, file: str, namespace: str | None, as_json: bool
) -> None:
    """Import the facts of a memory file of Delfhos; either all are added or none."""
    facts = facts_of(Path(file))
    names = sorted({fact.namespace for fact in facts})
    if namespace is not None and namespace not in names:
        raise click.UsageError(
            f"{file} has no namespace {namespace!r}: {', '.join(names) or 'none'}"
        )
    if namespace is None and len(names) > 1:
        raise click.UsageError(f"{file} has several namespaces: --from {' or '.join(names)}")
    if namespace is not None:
        facts = [fact for fact in facts if fact.namespace == namespace]
    texts = [fact.content for fact in facts]
    saved_at = [fact.saved_at for fact in facts]
    memory_store.use(lambda store: store.save(texts, "Delfhos", saved_at))
    _print_count(_RememberedRow(remembered=len(facts)), as_json)


def _print_count(row: _RememberedRow | _ForgottenRow, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(row))
        return
    for what, count in row.items():
        click.echo(f"{count} {what}", err=True)


def _print_facts(facts: Sequence[StoredFact], as_json: bool) -> None:
    if as_json:
        click.echo(encode_json([_fact_row(fact) for fact in facts], indent=2))
        return
    for fact in facts:
        click.echo(f"{fact.id:>6}  {wrap_text(one_line(fact.content), indent=8)}")


def _fact_row(fact: StoredFact) -> _FactRow:
    return _FactRow(
        id=fact.id,
        content=fact.content,
        source=fact.source,
        saved_at=fact.saved_at.isoformat(),
    )
