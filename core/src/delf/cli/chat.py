"""``delf chat``: tasks one after another, each knowing those before it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from delf.cli.errors import FAILED
from delf.cli.output import json_text
from delf.cli.run import flags_of, rest_of
from delf.cli.run import run as run_command
from delf.cli.state import State, state_of

if TYPE_CHECKING:
    from delf.chat import Chat
    from delf.cli.session import Options
    from delf.plugins.host import PluginHost

F = TypeVar("F", bound=click.Command)

_NOT_SHARED: Final = {"task", "as_json", "events"}
_LISTED: Final = 100


def _options_of_run(command: F) -> F:
    """Give a command the options of ``delf run`` that describe the agent."""
    shared = [option for option in run_command.params if option.name not in _NOT_SHARED]
    command.params = [*command.params, *shared]
    return command


@_options_of_run
@click.command(
    "chat",
    epilog="Exit status: 0 done, 1 a task of the standard input failed, 2 usage or configuration.",
)
@click.option("--conversation", metavar="ID", help="Go on with this conversation, or begin it.")
@click.option("--last", is_flag=True, help="Go on with the newest conversation.")
@click.option("--list", "list_them", is_flag=True, help="List the conversations and leave.")
@click.option("--json", "as_json", is_flag=True, help="With --list: write them as JSON.")
@click.pass_context
def chat(ctx: click.Context, **given: Any) -> None:
    """Do tasks that are typed one after another; each knows those before it.

    Conversations are kept in the journal's database if the plugin journal-sql is installed.
    Commands begin with a slash: /help shows them. Ctrl-C stops a task, Ctrl-D leaves. Where no
    terminal is, each line of the standard input is a task.

    \b
    delf chat -c shop
    delf chat --last
    delf chat --list
    """  # noqa: D301 - click's mark for lines that stay as they are
    if given["conversation"] is not None and given["last"]:
        raise click.UsageError("--conversation and --last exclude each other", ctx)
    if given["as_json"] and not given["list_them"]:
        raise click.UsageError("--json goes with --list", ctx)
    from delf.cli.session import Options, log_to_stderr

    state = state_of(ctx)
    rest = {"events": False, **given, "as_json": False}
    options = Options(flags=flags_of(given), **rest_of(rest))
    log_to_stderr(state)
    if given["list_them"]:
        _list(state, options, as_json=given["as_json"])
        return
    if not _talk(state, options, given["conversation"], last=given["last"]):
        ctx.exit(FAILED)


def _talk(state: State, options: Options, conversation: str | None, *, last: bool) -> bool:
    """Whether it went well: a person has seen what failed."""
    from delf.cli.interrupt import run_until_done
    from delf.cli.lines import history_file, open_reader
    from delf.cli.repl import Manner, Repl
    from delf.cli.session import Setup
    from delf.cli.slash import COMMANDS

    needed = last or conversation is not None
    setup = Setup.of(state, options)
    made = setup.agent(chat=_make_chat(setup.host, conversation, needed=needed))
    reader = open_reader(COMMANDS, history_file())
    manner = Manner(show_code=options.show_code, verbose=options.verbose)

    async def main() -> bool:
        async with await setup.start(made) as agent:
            if last and agent.chat is not None:
                found = await agent.chat.aconversations(1)
                if found:
                    agent.chat.switch(found[0].conversation)
            return await Repl(agent, reader, manner).run()

    return run_until_done(main) or reader.interactive


def _make_chat(host: PluginHost, conversation: str | None, *, needed: bool) -> Chat:
    """A chat that is kept where that is possible, or has to be.

    Args:
        host: Where its journal comes from.
        conversation: Its id.
        needed: Whether it must be kept: somebody wants to go on with one.
    """
    from delf.chat import Chat
    from delf.cli.errors import say
    from delf.cli.slash import new_conversation
    from delf.errors import PluginError
    from delf.specs import JournalSpec

    persist = True
    if not needed:
        try:
            host.spec(JournalSpec, "sql")
        except PluginError as error:
            persist = False
            if sys.stdin.isatty():
                say("warning", f"the conversation is not kept: {error.message}")
    return Chat(persist=persist, conversation_id=conversation or new_conversation())


def _list(state: State, options: Options, *, as_json: bool) -> None:
    from delf.chat import Chat
    from delf.chat.place import Surroundings
    from delf.cli.slash import conversation_lines

    project = state.load_project(options.overrides, options.flags)
    surroundings = Surroundings(
        host=state.discover(project.environ),
        plugin_options=project.plugin_options,
        environ=project.environ,
    )
    with Chat(persist=True, conversation_id="-") as chat:
        chat.attach(surroundings)
        found = chat.conversations(_LISTED)
        if as_json:
            data = [
                {
                    "conversation": record.conversation,
                    "messages": record.messages,
                    "updated_at": record.updated_at,
                    "title": record.title,
                }
                for record in found
            ]
            click.echo(json_text(data, indent=2))
            return
        for line in conversation_lines(chat, found):
            click.echo(line.removeprefix("  "))
    if not found:
        click.echo("There is no conversation yet", err=True)
