"""Commands within a conversation: ``/help``, ``/new``, ``/cost`` and others."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from delf.errors import DelfError, did_you_mean
from delf_chat.chat import Chat, chat_of
from delf_chat.checks import check_id_without_user
from delf_cli.errors import report, say
from delf_cli.formats import format_count, format_usd
from delf_cli.output import Screen
from delf_cli.tables import format_table, one_line, terminal_width

if TYPE_CHECKING:
    from delf import Agent
    from delf.protocols.conversation import ConversationRecord

COMMANDS: Final[Mapping[str, str]] = {
    "/help": "show the commands",
    "/new": "begin another conversation",
    "/open": "go on with another conversation: /open ID",
    "/list": "list the conversations",
    "/history": "show the messages that the next task is shown",
    "/cost": "show what was spent",
    "/clear": "clear the screen",
    "/stop": "free the sandbox and connections; the next task starts them again",
    "/exit": "leave, as Ctrl-D does",
}
_ALIASES: Final = {"/quit": "/exit", "/?": "/help"}
EXIT_WORDS: Final = frozenset({"exit", "quit", "exit()", "quit()", "bye", ":q"})
"""Words that end the session, and are not tasks."""
_COMMAND: Final = re.compile(r"/(?:\?|[a-z]+)(?:\s|$)")
_KEYS_HELP: Final = (
    "Enter sends. Alt-Enter, or \\ and Enter, begins another line. Up brings earlier lines back.\n"
    "Ctrl-C stops the task that runs; Ctrl-D leaves."
)
_MAX_SHOWN_CHARACTERS: Final = 500


class Tally:
    """Counts the tasks and costs of a session.

    Args:
        agent: The agent, whose earlier costs are not counted.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._initial_cost = agent.total_cost_usd
        self._initial_usage = agent.usage
        self.tasks = 0
        self.failed = 0

    def line(self) -> str:
        """Return the number of tasks, the costs and the tokens as a line of text.

        Costs and tokens include summaries and child tasks.
        """
        status = self._agent.status()
        usage = self._agent.usage - self._initial_usage
        # A budget reset lowers the total.
        used = max(0.0, self._agent.total_cost_usd - self._initial_cost)
        cost = format_usd(used)
        if status["unpriced_calls"]:
            cost = f"{cost} where prices are known" if used else "cost unknown"
        return f"{format_count(self.tasks, 'task')} · {cost} · {usage.text}"


def new_conversation() -> str:
    """Return a unique conversation id, made of the date and random letters."""
    return f"{time.strftime('%Y-%m-%d')}-{secrets.token_hex(3)}"


def is_command(text: str) -> bool:
    """Return True if a text is a slash command. ``/etc/hosts …`` is the start of a task."""
    return _COMMAND.match(text) is not None


async def run_slash_command(text: str, agent: Agent, screen: Screen, tally: Tally) -> bool:
    """Run a slash command.

    Returns:
        False to end the session.
    """
    word, *rest = text.split(maxsplit=1)
    name = _ALIASES.get(word, word)
    if name == "/exit":
        return False
    action = _ACTIONS.get(name)
    if action is None:
        say("error", f"unknown command {word!r}{did_you_mean(name, COMMANDS)}")
        say("hint", "/help shows the commands")
        return True
    try:
        argument = rest[0].strip() if rest else ""
        await action(_Session(agent, screen, tally), argument)
    except DelfError as error:
        report(error)
    return True


@dataclass(frozen=True)
class _Session:
    """The slash commands as methods; each method gets the text after the command's name."""

    agent: Agent
    screen: Screen
    tally: Tally

    @property
    def chat(self) -> Chat:
        chat = chat_of(self.agent)
        if chat is None:
            raise DelfError("this agent has no chat")
        return chat

    async def help(self, rest: str) -> None:
        width = max(map(len, COMMANDS))
        for name, summary in COMMANDS.items():
            self.screen.line(f"  {name:<{width}}  {summary}")
        self.screen.line(_KEYS_HELP, "dim")

    async def new(self, rest: str) -> None:
        self.chat.switch(rest or new_conversation())
        self.screen.line(f"conversation {self.chat.conversation_id}", "dim")

    async def open(self, rest: str) -> None:
        if not rest:
            raise DelfError("which one?", hint="/open ID; /list shows them")
        stored = await self.chat.store().load(check_id_without_user(rest), limit=1)
        is_missing = not stored.messages and stored.summary is None
        if is_missing:
            known_ids = [record.conversation for record in await self.chat.aconversations()]
            raise DelfError(
                f"there is no conversation {rest!r}{did_you_mean(rest, known_ids)}",
                hint="/list shows them; /new ID begins one",
            )
        self.chat.switch(rest)
        state = await self.chat.astate()
        count = format_count(len(state.messages), "message")
        self.screen.line(f"conversation {rest}, {count}", "dim")

    async def list(self, rest: str) -> None:
        records = await self.chat.aconversations(20)
        for line in conversation_lines(records, self.chat.conversation_id):
            self.screen.line(line)
        if not records:
            self.screen.line("there is none yet", "dim")

    async def history(self, rest: str) -> None:
        state = await self.chat.astate()
        if state.summary:
            self.screen.line(f"summary: {state.summary}", "dim")
        for message in state.messages:
            self.screen.line(f"{message.role}: {_cut(message.content)}")
        if not state.messages and not state.summary:
            self.screen.line("the conversation is empty", "dim")

    async def cost(self, rest: str) -> None:
        self.screen.line(self.tally.line())
        budget = self.agent.status()["budget"]
        if budget["limit_usd"] is not None:
            self.screen.line(
                f"budget ${budget['limit_usd']:g}: {format_usd(budget['remaining_usd'])} left, "
                f"{format_usd(budget['cost_usd'])} spent"
            )

    async def clear(self, rest: str) -> None:
        if self.screen.console is not None:
            self.screen.console.clear()

    async def stop(self, rest: str) -> None:
        await self.agent.astop()
        self.screen.line("stopped; the next task starts it again", "dim")


_ACTIONS: Final[Mapping[str, Callable[[_Session, str], Awaitable[None]]]] = {
    "/help": _Session.help,
    "/new": _Session.new,
    "/open": _Session.open,
    "/list": _Session.list,
    "/history": _Session.history,
    "/cost": _Session.cost,
    "/clear": _Session.clear,
    "/stop": _Session.stop,
}


def conversation_lines(
    records: Sequence[ConversationRecord], current: str | None = None
) -> list[str]:
    """Format conversations as the lines of a table. A star marks the current conversation."""
    rows = [
        (
            ("* " if record.conversation == current else "") + one_line(record.conversation),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(record.updated_at)),
            format_count(record.messages, "message"),
            one_line(record.title),
        )
        for record in records
    ]
    if not rows:
        return []
    head = ("conversation", "last", "messages", "title")
    # whole=False truncates long titles, so that each conversation takes one line.
    return format_table(rows, head, terminal_width(), whole=False)


def _cut(text: str) -> str:
    if len(text) <= _MAX_SHOWN_CHARACTERS:
        return text
    return f"{text[:_MAX_SHOWN_CHARACTERS]}… ({len(text):,} characters)"
