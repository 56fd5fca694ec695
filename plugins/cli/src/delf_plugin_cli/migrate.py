"""``delf migrate``: data of another framework become data of delf."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote

import click

from delf.errors import ConfigurationError, DelfError, PluginError
from delf.messages import Role
from delf.plugins.factories import make
from delf.protocols.conversation import ChatMessage, ConversationStore
from delf.specs import MemorySpec
from delf.trust.folders import PRICES_FILE
from delf_cli.journals import work_with
from delf_cli.state import State, state_of
from delf_engine.journal.factory import need_durable_journal

_FACTS: Final = "SELECT namespace, content FROM memories ORDER BY id"
_MESSAGES: Final = "SELECT namespace, role, content, created_at FROM chat_messages ORDER BY id"
_SUMMARIES: Final = "SELECT namespace, summary FROM chat_state WHERE summary <> ''"
_SUMMARY: Final = "Summary of what was said before"
_TOKEN: Final = re.compile(r"(?:oauth_)?(gmail|drive|sheets|docs|calendar)(?:_[0-9a-f]{8})?\.json")
_LOGIN: Final = {"refresh_token", "client_id", "client_secret"}
_CONVERSATION: Final = "default"
_SHIPPED: Final = """
0.1 0.4 gemini-2.5-flash-lite gemini-2.5-flash-lite-preview-09-2025 gemini-3.1-flash-lite
0.1 0.4 gemini-2.0-flash gpt-4.1-nano
0.15 0.6 gemini-2.5-flash gpt-4o-mini
0.5 3 gemini-3-flash-preview gemini-3.1-flash-preview
1.25 10 gemini-2.5-pro gpt-5
2 12 gemini-3-pro-preview gemini-3.1-pro-preview
1.5 9 gemini-3.5-flash
0.25 1 gpt-5-mini
0.4 1.6 gpt-4.1-mini
1.1 4.4 o4-mini
2 8 gpt-4.1 o3
2.5 10 gpt-4o
0.25 1.25 claude-haiku-3
0.8 4 claude-haiku-3-5
1 5 claude-haiku-4-5-20251001
3 15 claude-sonnet-4 claude-sonnet-4-5 claude-sonnet-4-6
5 25 claude-opus-4-5 claude-opus-4-6
15 75 claude-opus-4-1
"""
"""The lines that Delfhos 0.9 writes into its file of prices by itself: in, out, models."""
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


@dataclass
class _Found:
    """The data that Delfhos keeps of a person.

    Args:
        facts: By namespace, the oldest first.
        chats: By namespace, the oldest first.
        summaries: Of what is left out of them, by namespace.
        prices: By the name of a model, as they are written.
        logins: Files with a login at Google, by the type of their connection.
    """

    facts: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    chats: dict[str, list[ChatMessage]] = field(default_factory=dict[str, "list[ChatMessage]"])
    summaries: dict[str, str] = field(default_factory=dict[str, str])
    prices: dict[str, Any] = field(default_factory=dict[str, Any])
    logins: dict[str, str] = field(default_factory=dict[str, str])

    def __bool__(self) -> bool:
        return any(asdict(self).values())


@dataclass
class _Taken:
    """The counts of data that delf has now; known data does not count."""

    facts: int = 0
    conversations: int = 0
    messages: int = 0
    prices: int = 0
    logins: dict[str, str] = field(default_factory=dict[str, str])


@click.group("migrate")
def migrate() -> None:
    """Import the data of another framework.

    \b
    delf migrate delfhos
    """  # noqa: D301 - click's mark for lines that stay as they are


@migrate.command("delfhos")
@click.option(
    "--from",
    "source",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder with the files of Delfhos.  [default: ~/delfhos]",
)
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@click.pass_context
def delfhos(ctx: click.Context, source: Path | None, as_json: bool) -> None:
    """Import facts, chats, prices and logins of Delfhos; its own files stay as they are.

    Data that delf already has is not imported again.
    """
    folder = source or Path.home() / "delfhos"
    found = _read(
        folder, (Path.home() / ".config", Path.home() / ".cortex/tokens", folder / "tokens")
    )
    if not found:
        raise ConfigurationError(
            f"there are no files of Delfhos in {folder}", hint="--from names its folder"
        )
    taken = _take(state_of(ctx), found)
    if as_json:
        click.echo(json.dumps(asdict(taken), ensure_ascii=False, indent=2))
        return
    click.echo(f"facts: {taken.facts} taken")
    click.echo(f"conversations: {taken.conversations} taken, {taken.messages} messages")
    click.echo(f"prices: {taken.prices} taken")
    if taken.logins:
        click.echo("logins: these sections of delf.toml use them\n")
        for kind, path in taken.logins.items():
            click.echo(f"[connections.{kind}]\noauth_credentials = {json.dumps(path)}\n")


def _read(folder: Path, tokens: Sequence[Path]) -> _Found:
    """Read the data in a folder.

    Raises:
        ConfigurationError: For a file that cannot be read.
    """
    found = _Found()
    for file in sorted((folder / "memory").glob("*.db")):
        for namespace, content in _rows(file, _FACTS):
            found.facts.setdefault(namespace, []).append(content)
    for file in sorted((folder / "chat").glob("*.db")):
        for namespace, role, content, at in _rows(file, _MESSAGES):
            message = ChatMessage(role=_role(role), content=content, at=_unix_time(at))
            found.chats.setdefault(namespace, []).append(message)
        for namespace, summary in _rows(file, _SUMMARIES):
            found.summaries[namespace] = summary
            found.chats.setdefault(namespace, [])
    found.prices = _prices(folder / PRICES_FILE)
    for file in (file for place in tokens for file in sorted(place.glob("*.json"))):
        match = _TOKEN.fullmatch(file.name)
        if match is not None and _is_login(file):
            found.logins[match[1]] = str(file)
    return found


def _is_login(file: Path) -> bool:
    """Tell whether it is a login as google-auth writes it, which delf reads as it is."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and cast("dict[str, Any]", content).keys() >= _LOGIN


def _rows(file: Path, query: str) -> Iterator[Sequence[Any]]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as database:
            yield from database.execute(query)
    except sqlite3.Error as error:
        raise ConfigurationError(
            f"{file} is not a database of Delfhos: {error}", hint="move it away, and try again"
        ) from None


def _role(text: str) -> Role:
    return text if text in ("user", "assistant", "system") else "user"


def _unix_time(text: str | None) -> float:
    """The time that SQLite wrote, which is in UTC; 0 for another text."""
    try:
        return datetime.strptime(text or "", "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _prices(file: Path) -> dict[str, Any]:
    """Prices as Delfhos reads them, with comments of JavaScript, too; none that it wrote itself."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from None
    try:
        content: Any = json.loads(_COMMENT.sub(lambda match: match[1] or "", text))
    except ValueError as error:
        raise ConfigurationError(f"{file} is not JSON: {error}", hint="fix it first") from None
    for key in ("llm", "models"):
        if isinstance(content, dict) and key in content:
            content = cast("dict[str, Any]", content)[key]
    listed = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    shipped = _shipped()
    return {
        name: entry
        for name, entry in listed.items()
        if isinstance(entry, dict) and entry != shipped.get(name)
    }


def _shipped() -> dict[str, dict[str, float]]:
    prices: dict[str, dict[str, float]] = {}
    for line in _SHIPPED.strip().splitlines():
        given, out, *models = line.split()
        entry = {"input_per_million": float(given), "output_per_million": float(out)}
        prices |= dict.fromkeys(models, entry)
    return prices


def _take(state: State, found: _Found) -> _Taken:
    from delf_engine.agent_context import AgentContext

    project = state.load_project()
    taken = _Taken(logins=found.logins)
    if found.prices:  # first, as a folder that cannot be trusted takes none
        _take_prices(project, found.prices, taken)
    if found.chats:
        context = AgentContext.of(project, state.discover(project.environ), project.agent)
        need_durable_journal(context.host, "a chat that is kept")
        work_with(context.open_conversations(), lambda journal: _take_chats(journal, found, taken))
    if found.facts:
        asyncio.run(_take_facts(project, state, found.facts, taken))
    return taken


async def _take_chats(journal: Any, found: _Found, taken: _Taken) -> None:
    for namespace, messages in found.chats.items():
        store: ConversationStore = journal.conversations(namespace)
        if (await store.load(_CONVERSATION, 1)).last:
            continue  # it goes on here already
        summary = found.summaries.get(namespace)
        first = [ChatMessage(role="system", content=_SUMMARY)] if summary else []
        await store.append(_CONVERSATION, [*first, *messages])
        if summary:
            await store.summarize(_CONVERSATION, summary, 1, instead_of=0)
        taken.conversations += 1
        taken.messages += len(messages)


async def _take_facts(
    project: Any, state: State, facts: Mapping[str, Sequence[str]], taken: _Taken
) -> None:
    from delf import plugin_context

    host = state.discover(project.environ)
    specs = host.specs(MemorySpec)
    if not specs:
        raise PluginError(
            "no memory store for the facts is installed",
            hint="delf plugins install memory-semantic",
        )
    name = project.agent.memory
    spec = host.spec(MemorySpec, name) if name else host.preferred(specs, "memory")
    for namespace, texts in facts.items():
        context = plugin_context(project, namespace=namespace)
        store = make(host, spec, project.plugin_options, {"context": context})
        try:
            known = {fact.content for fact in await store.list()}
            new = [text for text in dict.fromkeys(texts) if text.strip() and text not in known]
            await store.save(new)
            taken.facts += len(new)
        finally:
            await store.aclose()


def _take_prices(project: Any, prices: Mapping[str, Any], taken: _Taken) -> None:
    from delf.trust.decisions import items_of

    file: Path = project.root / PRICES_FILE
    own: dict[str, Any] = {}
    if file.exists():
        from delf_engine.project.prices import read_prices

        read_prices(file)  # one that is wrong is told before it is written
        before = file.read_text(encoding="utf-8")
        project.trust.check(file.parent, {file.name: items_of(file.name, before)})
        own = json.loads(before)
    models = own.get("models", own)
    new = {name: entry for name, entry in prices.items() if name not in models}
    models.update(new)
    after = json.dumps(own, ensure_ascii=False, indent=2) + "\n"
    project.trust.keep(file.parent, {file.name: items_of(file.name, after)})
    try:
        file.write_text(after, encoding="utf-8")
    except OSError as error:
        raise DelfError(f"{file} cannot be written: {error.strerror}") from error
    taken.prices += len(new)
