"""``delf approvals``: decide about calls that wait in other processes, through the journal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from delf.events import ApprovalVoted, Remember
from delf.protocols.approval import (
    NO_REASON,
    AlreadyDone,
    Answered,
    Approved,
    ChangesRequested,
    Decider,
    Decision,
    Edited,
    Rejected,
)
from delf.protocols.journal import RequestRecord
from delf_approval_terminal import listing
from delf_cli import answering
from delf_cli.as_json import as_json_option
from delf_cli.complete import completes
from delf_cli.ids import check_id_prefix, short_id
from delf_cli.journals import ask_journal
from delf_cli.lazy import BareGroup
from delf_cli.output import json_text

_BY: Final = "cli"
_WHO: Final = Decider(name=_BY, via="command line")
_MAX_OFFERED: Final = 50
_MAX_LISTED: Final = 100_000


@completes
def _request_ids(ctx: click.Context) -> Iterable[str]:
    """Return the ids of waiting requests, for shell completion."""
    requests = ask_journal(ctx, lambda j: j.find_requests(waiting=True, limit=_MAX_OFFERED))
    return [short_id(record.requested.request_id) for record in requests]


@completes
def _remembered_ids(ctx: click.Context) -> Iterable[str]:
    """Return the ids of remembered decisions, for shell completion."""
    decisions = ask_journal(ctx, answering.remembered_decisions)
    return [short_id(decision.request_id) for decision in decisions]


request_argument = click.argument("request_id", metavar="ID", shell_complete=_request_ids)


@click.group(
    "approvals",
    cls=BareGroup,
    bare_command="list",
    epilog="Exit status: 0 done, 1 refused (no such request, or the answer came late), "
    "2 usage or configuration.",
)
def approvals() -> None:
    """Show the calls and questions of all processes that wait for a person, and decide about them.

    You may shorten an ID if it stays unique. A decision needs at least six characters of the ID. At
    a terminal, a decision shows the request and asks you once more. The first decision counts,
    whether it comes from this command, from the terminal of the task, or from its program.

    \b
    delf approvals list
    delf approvals approve 3f9a2b1
    delf approvals reject 3f9a2b1 --reason "wrong customer"
    delf approvals edit 3f9a2b1 amount=20
    delf approvals changes 3f9a2b1 --reason "ask the customer first"
    delf approvals comment 3f9a2b1 "is this the right account?"
    delf approvals assign 3f9a2b1 ann
    delf approvals settle 3f9a2b1 --result '"paid"'
    delf approvals answer 3f9a2b1 "Ann Smith"
    delf approvals remembered --revoke 3f9a2b1
    """  # noqa: D301 - click's mark for lines that stay as they are


@approvals.command("list")
@as_json_option(None)
@click.pass_context
def list_command(ctx: click.Context, as_json: bool) -> None:
    """List the calls that wait for approval, the oldest first."""
    requests = ask_journal(ctx, lambda j: j.find_requests(waiting=True, limit=_MAX_LISTED))
    if as_json:
        click.echo(json_text([answering.request_data(record) for record in requests], indent=2))
        return
    if not requests:
        click.echo("Nothing waits for approval", err=True)
        return
    for line in listing.requests_table(requests):
        click.echo(line)


@approvals.command("show", short_help="Show a request in full.")
@request_argument
@as_json_option(None)
@click.pass_context
def show(ctx: click.Context, request_id: str, as_json: bool) -> None:
    """Show a request in full: the call with its arguments or the script, and the reason to ask."""
    record = ask_journal(ctx, lambda journal: answering.find_request(journal, request_id))
    if as_json:
        click.echo(json_text(answering.request_data(record), indent=2))
        return
    listing.show(record)


@approvals.command("approve")
@request_argument
@click.option(
    "--remember",
    type=click.Choice(("task", "until-revoked")),
    help="Approve the same call with the same arguments again: in this task, or also in later "
    "tasks until you revoke it.",
)
@click.option(
    "--any-arguments",
    is_flag=True,
    help="With --remember: approve every call of the action, with any arguments.",
)
@click.option("--note", metavar="TEXT", help="A note for the journal.")
@as_json_option(answering.DecisionRow)
@click.pass_context
def approve(
    ctx: click.Context,
    request_id: str,
    remember: str | None,
    any_arguments: bool,
    note: str | None,
    as_json: bool,
) -> None:
    """Approve the call or the script of a request."""
    if any_arguments and remember is None:
        raise click.UsageError("--any-arguments goes with --remember", ctx)
    lifetimes: dict[str | None, Remember] = {
        None: "no",
        "task": "task",
        "until-revoked": "until_revoked",
    }
    decision = Approved(
        remember=lifetimes[remember],
        covers="action" if any_arguments else "call",
        reason=note,
    )
    _send(ctx, _find_request(ctx, request_id), decision, as_json=as_json)


@approvals.command("reject")
@request_argument
@click.option(
    "--reason",
    metavar="TEXT",
    default=NO_REASON,
    help="The reason, for the script and the model.",
)
@as_json_option(answering.DecisionRow)
@click.pass_context
def reject(ctx: click.Context, request_id: str, reason: str, as_json: bool) -> None:
    """Reject the call or the script of a request."""
    _send(ctx, _find_request(ctx, request_id), Rejected(reason=reason), as_json=as_json)


@approvals.command("answer")
@request_argument
@click.argument("answer", metavar="ANSWER")
@as_json_option(answering.DecisionRow)
@click.pass_context
def answer_command(ctx: click.Context, request_id: str, answer: str, as_json: bool) -> None:
    """Answer a question of a script.

    ANSWER is a text, one of the options, yes or no, or a number, as the question asks. To answer
    nothing, reject the question with a reason.
    """
    _send(ctx, _find_request(ctx, request_id), Answered(answer), as_json=as_json)


@approvals.command("changes", short_help="Ask the model for changes instead.")
@request_argument
@click.option("--reason", metavar="TEXT", required=True, help="The wanted changes, for the model.")
@as_json_option(answering.DecisionRow)
@click.pass_context
def changes(ctx: click.Context, request_id: str, reason: str, as_json: bool) -> None:
    """Ask for changes: the call is not made, and the model plans again with your reason.

    The task goes on with another script. If a rule requires the approval of several people,
    another person than you has to approve the next call, because your reason shaped it.
    """
    if not reason.strip():
        raise click.UsageError("--reason is empty; say what the model should change", ctx)
    _send(ctx, _find_request(ctx, request_id), ChangesRequested(reason=reason), as_json=as_json)


@approvals.command("comment")
@request_argument
@click.argument("text")
@as_json_option(None)
@click.pass_context
def comment(ctx: click.Context, request_id: str, text: str, as_json: bool) -> None:
    """Comment on a request that waits; people read comments, the model does not."""
    request = ask_journal(ctx, lambda journal: answering.find_request(journal, request_id))
    record = ask_journal(ctx, lambda journal: answering.comment(journal, request, text, _WHO))
    _report(record, "commented", as_json=as_json)


@approvals.command("assign")
@request_argument
@click.argument("person", required=False)
@click.option("--nobody", is_flag=True, help="Assign the request to nobody.")
@as_json_option(None)
@click.pass_context
def assign(
    ctx: click.Context, request_id: str, person: str | None, nobody: bool, as_json: bool
) -> None:
    """Assign a waiting request to a person who may approve it.

    The person is notified in the way that they chose. All other persons who may decide about the
    request can still decide about it.
    """
    has_person = person is not None
    if has_person == nobody:  # both or neither of the two
        raise click.UsageError("name a person, or give --nobody", ctx)
    request = ask_journal(ctx, lambda journal: answering.find_request(journal, request_id))
    record = ask_journal(ctx, lambda journal: answering.assign(journal, request, person, _WHO))
    _report(record, f"assigned to {person or 'nobody'}", as_json=as_json)


@approvals.command("settle", short_help="Say that an interrupted call did happen.")
@request_argument
@click.option(
    "--result", metavar="JSON", help="The result of the call, as JSON; the script gets it."
)
@click.option("--note", metavar="TEXT", help="A note for the journal.")
@as_json_option(answering.DecisionRow)
@click.pass_context
def settle(
    ctx: click.Context, request_id: str, result: str | None, note: str | None, as_json: bool
) -> None:
    """Say that an interrupted call did happen, so that it is not made again.

    This works only for a call that was begun when its process died. If you approve such a call,
    it is made again.
    """
    try:
        value = None if result is None else json.loads(result)
    except (ValueError, RecursionError):
        raise click.UsageError(
            "--result is not JSON; write a text in quotes: '\"text\"'", ctx
        ) from None
    decision = AlreadyDone(result=value, reason=note)
    _send(ctx, _find_request(ctx, request_id), decision, as_json=as_json)


@approvals.command("edit", short_help="Approve a call with other arguments.")
@request_argument
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True)
@as_json_option(answering.DecisionRow)
@click.pass_context
def edit(ctx: click.Context, request_id: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Approve a call with other arguments, which are checked again.

    KEY=VALUE sets one argument. VALUE is a text if the argument was a text. Otherwise it is read
    as JSON if possible. The other arguments stay as they are.
    """
    pairs = [_pair(ctx, text) for text in changes]
    request = _find_request(ctx, request_id)
    old = request.requested.arguments
    decision = Edited(arguments={name: _value(text, old.get(name)) for name, text in pairs})
    _send(ctx, request, decision, as_json=as_json)


@approvals.command(
    "remembered", short_help="List or revoke decisions that let calls pass without asking."
)
@click.option(
    "--revoke",
    metavar="ID",
    shell_complete=_remembered_ids,
    help="Revoke a decision, for every process that uses the journal.",
)
@as_json_option(answering.RememberedRow)
@click.pass_context
def remembered(ctx: click.Context, revoke: str | None, as_json: bool) -> None:
    """List the decisions that allow later calls until you revoke them.

    The ID of a decision is the ID of its request. You may shorten an ID if it stays unique.
    """
    if revoke is not None:
        decision = ask_journal(ctx, lambda journal: answering.revoke(journal, revoke, _BY))
        if as_json:
            click.echo(json_text(answering.remembered_data(decision), indent=2))
        else:
            click.echo(f"revoked: {listing.remembered_line(decision)}")
        return
    decisions = ask_journal(ctx, answering.remembered_decisions)
    if as_json:
        click.echo(json_text([answering.remembered_data(each) for each in decisions], indent=2))
        return
    if not decisions:
        click.echo("No decision is remembered", err=True)
        return
    for line in listing.remembered_table(decisions):
        click.echo(line)


# -- what they share --------------------------------------------------------------------------


def _find_request(ctx: click.Context, id_text: str) -> RequestRecord:
    """Return the request to decide about, by the beginning of its id."""
    request = ask_journal(ctx, lambda journal: answering.find_request(journal, id_text))
    check_id_prefix(id_text, request.requested.request_id)
    return request


def _send(ctx: click.Context, request: RequestRecord, decision: Decision, *, as_json: bool) -> None:
    """Send a decision about a request, and print the outcome.

    At a terminal, show the request and ask for confirmation first.
    """
    if sys.stdin.isatty() and request.waits:
        edited: Mapping[str, Any] = decision.arguments if isinstance(decision, Edited) else {}
        for line in listing.facts_of(request, edited):
            click.echo(line, err=True)
        if not click.confirm(f"{request.requested.request_id}: send this decision?", err=True):
            click.echo("nothing was decided", err=True)
            ctx.exit(1)
    decided = ask_journal(ctx, lambda journal: answering.send(journal, request, decision, _WHO))
    if as_json:
        click.echo(json_text(answering.decided_data(request, decided), indent=2))
        return
    if isinstance(decided, ApprovalVoted):
        line = listing.request_line(request)
        click.echo(f"approved; another person has to approve it, too: {line}")
        return
    click.echo(f"{decided.decision}: {listing.request_line(request, decided.arguments)}")


def _report(record: RequestRecord, change: str, *, as_json: bool) -> None:
    """Print a request after a comment or an assignment."""
    if as_json:
        click.echo(json_text(answering.request_data(record), indent=2))
        return
    click.echo(f"{change}: {listing.request_line(record)}")


def _pair(ctx: click.Context, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise click.UsageError(f"{text!r} is not KEY=VALUE", ctx)
    return name.strip(), value


def _value(text: str, old: Any) -> Any:
    if isinstance(old, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
