"""``delf chat``: tasks one after another, each with the earlier ones as context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict

import click
from click.core import ParameterSource

from delf.errors import DelfError
from delf.protocols.conversation import ChatMessage
from delf_chat.chat import Chat
from delf_chat.summary import ConversationCompressionError
from delf_cli.as_json import as_json_option
from delf_cli.errors import FAILED, say
from delf_cli.journals import CurrentProject
from delf_cli.lazy import LazyGroup
from delf_cli.options import flags_of, remaining_options, run_options
from delf_cli.state import State, state_of
from delf_engine.journal.factory import need_durable_journal

if TYPE_CHECKING:
    from delf import Agent
    from delf_cli.session import Options, Setup

__all__ = [
    "Chat",
    "ChatMessage",
    "ConversationCompressionError",
    "chat",
    "terminal_chat",
]

_NOT_SHARED: Final = {"as_json", "events"}
_COMMANDS: Final = {
    "list": ("delf_chat.conversations:list_command", "List the conversations."),
    "delete": ("delf_chat.conversations:delete", "Forget conversations by their ids."),
    "prune": ("delf_chat.conversations:prune", "Forget old conversations."),
}


class _ChatRow(TypedDict):
    """The fields that ``delf chat --json`` adds to those of a response.

    Args:
        conversation: The conversation that the task continued.
    """

    conversation: str


class TerminalChat:
    """The chat on a terminal. Implements :class:`delf_engine.agent.ChatsOnTerminal`."""

    def run(self, agent: Agent[Any], *, timeout: float | None = None, **options: Any) -> None:
        """Run a chat session with an agent.

        If the agent is not running yet, start the agent, and stop the agent after the session.
        """
        from delf_chat import repl

        repl.run_chat(agent, timeout=timeout, **options)

    async def arun(
        self, agent: Agent[Any], *, timeout: float | None = None, **options: Any
    ) -> None:
        """Async version of :meth:`run`, which leaves the agent running after the session."""
        from delf_chat import repl

        await repl.arun_chat(agent, timeout=timeout, **options)


terminal_chat: Final = TerminalChat()


@click.group(
    "chat",
    cls=LazyGroup,
    group="chat ",
    lazy=_COMMANDS,
    invoke_without_command=True,
    epilog="Exit status: 0 done, 1 a task of the standard input failed, 2 usage or configuration.",
)
@click.option("--conversation", metavar="ID", help="Continue this conversation, or begin it.")
@click.option("--last", is_flag=True, help="Continue the newest conversation of this project.")
@as_json_option(
    _ChatRow,
    words="Write each response as a line of JSON, for tasks from the standard input.",
)
@click.pass_context
def chat(ctx: click.Context, **given: Any) -> None:
    """Do the tasks that you type. Each task knows the earlier tasks of the conversation.

    Conversations are stored if a journal plugin is installed. Commands begin with a slash; /help
    lists them. Ctrl-C stops a task, and Ctrl-D leaves. Without a terminal, each line of the
    standard input is a task.

    \b
    delf chat -c shop
    delf chat --last
    delf chat list
    """  # noqa: D301 - click's mark for lines that stay as they are
    if (command := ctx.invoked_subcommand) is not None:
        # A subcommand ignores these options: `delf chat --set … prune` would prune another journal.
        for param in ctx.command.params:
            if ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    f"{param.opts[0]} does nothing for {command}: delf chat {command} --help", ctx
                )
        return
    if given["conversation"] is not None and given["last"]:
        raise click.UsageError("--conversation and --last cannot be used together", ctx)
    from delf_chat.lines import is_interactive
    from delf_cli.session import Options

    if given["as_json"] and is_interactive():
        raise click.UsageError("--json is for tasks from the standard input", ctx)
    state = state_of(ctx)
    options = Options(
        flags=flags_of(given),
        conversation=given["conversation"],
        **remaining_options(given),
    )
    if not _run_session(state, options, continue_newest=given["last"]):
        ctx.exit(FAILED)


chat.params += run_options(without=_NOT_SHARED)


def _run_session(state: State, options: Options, *, continue_newest: bool) -> bool:
    """Run a chat session.

    Args:
        state: The state of the command line.
        options: The options of the session.
        continue_newest: Whether to continue the project's newest conversation, if there is any.

    Returns:
        False if a task failed and no person watched; the exit code then shows the failure.
    """
    from delf_chat.lines import history_file, open_reader
    from delf_chat.repl import Repl, SessionOptions
    from delf_chat.slash import COMMANDS
    from delf_cli.interrupt import run_until_done
    from delf_cli.session import Setup
    from delf_engine.agent import keep_cancelled_tasks_resumable

    setup = Setup.of(state, options)
    started_agents: list[Agent] = []  # gets the agent once it is started
    continues = continue_newest or options.conversation is not None
    chat = _make_chat(setup, must_persist=continues)
    new_agent = setup.agent(chat=chat)
    reader = open_reader(COMMANDS, history_file())

    async def run_session() -> bool:
        """Return True if all tasks of the session succeeded."""
        async with await setup.start(new_agent, require_journal=continue_newest) as agent:
            started_agents.append(agent)
            if continue_newest:
                await _switch_to_newest(chat, setup, CurrentProject.of(state))
            session_options = SessionOptions(
                verbose=setup.options.verbose,
                as_json=options.as_json,
                setup={**options.to_record(state), "chat": chat.persist},
            )
            return await Repl(agent, reader, session_options).run()

    def keep_resumable() -> None:
        """Let another process resume the task that a shutdown interrupts, if the chat is stored."""
        if chat.persist and setup.is_journalled:
            for agent in started_agents:
                keep_cancelled_tasks_resumable(agent)

    have_all_succeeded = run_until_done(run_session, keep_resumable)
    has_person_seen_failures = reader.interactive
    return have_all_succeeded or has_person_seen_failures


async def _switch_to_newest(chat: Chat, setup: Setup, project: CurrentProject) -> None:
    """Continue the newest conversation of a project, if there is any."""
    from delf_chat.conversations import newest_of_project

    newest = await newest_of_project(setup, project)
    if newest is None:
        say("warning", "this project has no conversation yet, so a new one begins")
    else:
        chat.switch(newest)


def _make_chat(setup: Setup, *, must_persist: bool) -> Chat:
    """Create a chat, which is stored in the journal if possible.

    Args:
        setup: The setup with the journal.
        must_persist: Whether the chat must be stored, because the user continues a conversation.
    """
    from delf_chat.slash import new_conversation

    persist = must_persist or _can_persist(setup)
    name = setup.options.conversation or new_conversation()
    return Chat(persist=persist, conversation_id=name)


def _can_persist(setup: Setup) -> bool:
    """Return True if conversations are stored.

    If the journal cannot store conversations, warn the person at a terminal.
    """
    from delf_chat.lines import is_interactive

    if setup.in_memory_was_chosen:
        return False
    try:
        need_durable_journal(setup.host, "a conversation that is kept")
    except DelfError as error:
        if is_interactive():
            say("warning", f"the conversation is not kept: {error.message}")
        return False
    return True
