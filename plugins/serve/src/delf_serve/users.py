"""``delf users``: the people of a server, their keys and their sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypedDict, cast

import click

from delf.errors import ConfigurationError
from delf.protocols.people import (
    EVERY_RIGHT,
    LOCAL,
    NOTICES,
    SCOPES,
    NoticeChoice,
    Person,
    Right,
    Scope,
    check_name,
    new_secret,
)
from delf.protocols.sessions import SessionRecord
from delf.protocols.shared_journal import SharedJournal
from delf_cli import errors
from delf_cli.as_json import as_json_option
from delf_cli.ids import check_id_prefix
from delf_cli.journals import ask_journal
from delf_cli.lazy import LazyGroup
from delf_cli.observing import tell_observers
from delf_cli.output import json_text
from delf_cli.streams import wrap_text
from delf_serve.people import (
    NOTICE_WAYS,
    Changer,
    RequestedChanges,
    require_active,
    without_key,
)

# The default name of a key.
_DEFAULT_LABEL: Final = "first"


# The fields of a person and of a key that ``--json`` writes.
_PERSON_FIELDS: Final = (
    "name",
    "rights",
    "scope",
    "teams",
    "mail",
    "notices",
    "notice_ways",
    "made_at",
    "revoked_at",
    "keys",
)
_KEY_FIELDS: Final = ("label", "made_at", "rights", "scope", "revoked_at")
_SESSION_FIELDS: Final = ("id", "name", "began", "until", "way", "client", "browser")


class _NewKeyRow(TypedDict):
    """The JSON that ``delf users add`` adds to the fields of the person.

    Args:
        key: The new key, which is shown only now; None if no key was made.
    """

    key: str | None


@click.group("users", cls=LazyGroup, group="users ", bare_command="list")
def users() -> None:
    """Manage the people of a server: their keys, rights, teams and sessions.

    The journal keeps them. A server follows a change within a second or two.

    \b
    delf users add ada --rights read+run+decide --scope team --team finance
    delf users list
    delf users revoke ada --key laptop
    """  # noqa: D301 - click's mark for lines that stay as they are


def _notices(choices: Collection[str]) -> tuple[NoticeChoice, ...]:
    """Return the chosen notices; none for the choice ``none``."""
    return tuple(notice for notice in NOTICES if notice in choices)


@users.command("add")
@click.argument("name", metavar="NAME")
@click.option(
    "--key", "label", default=_DEFAULT_LABEL, show_default=True, help="A name for the key."
)
@click.option("--no-key", is_flag=True, help="Make no key; the person logs in in another way.")
@click.option(
    "--rights",
    metavar="RIGHTS",
    help="Rights such as read+run: read, run, decide, delete, people; by default all but people.",
)
@click.option("--scope", type=click.Choice(SCOPES), help="Whose tasks the person sees.")
@click.option("--team", "teams", multiple=True, metavar="TEAM", help="A team of the person.")
@click.option("--mail", help='The person\'s mail address, which a login can use; "" for none.')
@click.option(
    "--notice",
    "notices",
    multiple=True,
    type=click.Choice([*NOTICES, "none"]),
    help="A notice that the person gets; none for no notices.",
)
@click.option(
    "--way",
    "ways",
    multiple=True,
    type=click.Choice(NOTICE_WAYS),
    help="A channel through which the person gets notices; by default mail and browser.",
)
@as_json_option(_NewKeyRow)  # docs/json.md has the other fields at `delf users list`
@click.pass_context
def add(
    ctx: click.Context,
    name: str,
    *,
    label: str,
    no_key: bool,
    rights: str | None,
    scope: str | None,
    teams: Sequence[str],
    mail: str | None,
    notices: Sequence[str],
    ways: Sequence[str],
    as_json: bool,
) -> None:
    """Add a person with a key, or another key for a person.

    The key is shown only once. By default a new person has all rights and sees their own tasks. A
    further key has at most the rights and the scope of its person. For a person who exists already,
    the options --team, --mail, --notice (notices to get) and --way (channels of notices) change
    that person's settings.
    """
    secret = None if no_key else new_secret()
    # In the changes, None leaves a setting unchanged. A missing option is None or empty.
    changes = RequestedChanges(
        rights=None if rights is None else _rights(rights),
        scope=cast("Scope | None", scope),
        teams=tuple(teams) or None,
        mail=mail,
        notices=_notices(notices) if notices else None,
        notice_ways=tuple(way for way in NOTICE_WAYS if way in ways) or None,
        label=label,
        secret=secret,
    )
    check_name(label, "name of the key")

    def change(known: Person | None) -> Person:
        is_existing_person = known is not None and known.revoked_at is None
        if is_existing_person and secret is not None:
            # For another key of a person, --rights and --scope restrict the key, not the person.
            return changes.for_new_key_only().apply_to(known, name)
        return changes.apply_to(known, name)

    person = _change(ctx, name, change)
    if as_json:
        click.echo(json_text({**_data(person), **_NewKeyRow(key=secret)}, indent=2))
        return
    # With a new key, stdout has the key alone, so that a program can read it.
    click.echo(_line(person), err=secret is not None)
    if scope is None and person.scope == "own" and "decide" in person.rights:
        errors.say(
            "hint",
            f"{name} sees only their own tasks; with --scope team or --scope all, {name} can also "
            "decide requests of other people's tasks",
        )
    if secret is not None:
        click.echo(f"the key {label!r}, which is shown only now:", err=True)
        click.echo(secret)


@users.command("list")
@as_json_option(Person, _PERSON_FIELDS)
@click.pass_context
def list_users(ctx: click.Context, *, as_json: bool) -> None:
    """List the people with their rights and keys."""
    people = ask_journal(ctx, lambda journal: journal.people())
    if as_json:
        click.echo(json_text([_data(person) for person in people], indent=2))
        return
    if not people:
        click.echo("nobody is known: delf users add NAME")
    for person in people:
        click.echo(wrap_text(_line(person), indent=4))
        for key in person.keys:
            state = "key" if key.revoked_at is None else "revoked"
            line = f"  {state} {key.label}"
            limits = _describe_limits(key.rights, key.scope)
            if limits:
                line += f" ({limits})"
            click.echo(line)


@users.command("revoke")
@click.argument("name", metavar="NAME")
@click.option("--key", "label", help="Remove only this key.")
@as_json_option(Person, _PERSON_FIELDS)
@click.pass_context
def revoke(ctx: click.Context, name: str, *, label: str | None, as_json: bool) -> None:
    """Remove a person with all keys and sessions, or one key."""

    def change(known: Person | None) -> Person:
        person = require_active(known, name)
        now = time.time()
        if label is None:
            return replace(person, revoked_at=now)
        return without_key(person, label)

    person = _change(ctx, name, change)
    if as_json:
        click.echo(json_text(_data(person), indent=2))
        return
    revoked = "everything" if label is None else f"key {label}"
    click.echo(f"{person.name}: {revoked} is revoked")


@users.command("sessions")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--end", "session", metavar="ID", help="End the session with this ID.")
@as_json_option(SessionRecord, _SESSION_FIELDS)
@click.pass_context
def sessions(ctx: click.Context, name: str | None, *, session: str | None, as_json: bool) -> None:
    """List the login sessions of the web page, of all people or of one person; or end a session."""

    async def list_or_end(journal: SharedJournal) -> list[SessionRecord]:
        """Return the login sessions, of one person if the command names a person.

        If the command names a session, end this session, and return only this session.
        """
        logins = list(await journal.logins())
        if name is not None:
            logins = [login for login in logins if login.name == name]
        if session is not None:
            # The displayed id is the beginning of the digest.
            logins = [login for login in logins if login.digest.startswith(session)]
            if len(logins) != 1:
                raise ConfigurationError("no such session, or several", hint="delf users sessions")
            check_id_prefix(session, logins[0].digest)
            await journal.end_login(logins[0].digest)
        return logins

    logins = ask_journal(ctx, list_or_end)
    if as_json:
        rows = [{field: getattr(login, field) for field in _SESSION_FIELDS} for login in logins]
        click.echo(json_text(rows, indent=2))
        return
    for login in logins:
        words = [login.id, login.name, login.client]
        if session is not None:
            words.append("ended")
        click.echo(" ".join(word for word in words if word))
    if not logins:
        click.echo("nobody is logged in")


def _change(ctx: click.Context, name: str, change: Callable[[Person | None], Person]) -> Person:
    """Change a person in the journal, and notify the plugins that observe changes."""

    async def change_in(journal: SharedJournal) -> Person:
        async with tell_observers(ctx) as tell:
            return await Changer(LOCAL, "delf users", tell).change(journal, name, change)

    return ask_journal(ctx, change_in)


def _rights(text: str) -> tuple[Right, ...]:
    """Parse rights such as ``read+run``, and return the rights in their usual order."""
    names = text.split("+")
    if not set(names) <= set(EVERY_RIGHT):
        raise ConfigurationError(
            f"{text[:80]!r} are not rights", hint=f"some of {'+'.join(EVERY_RIGHT)}"
        )
    return tuple(right for right in EVERY_RIGHT if right in names)


def _describe_limits(rights: Iterable[str] | None, scope: str | None) -> str:
    text = "" if rights is None else "+".join(rights)
    return text if scope is None else f"{text}@{scope}"


def _line(person: Person) -> str:
    parts = [person.name, _describe_limits(person.rights, person.scope)]
    if person.teams:
        parts.append(f"in {', '.join(person.teams)}")
    if person.mail:
        parts.append(person.mail)
    if person.revoked_at is not None:
        parts.append("revoked")
    return "  ".join(parts)


def _data(person: Person) -> dict[str, Any]:
    """Return the fields of a person for ``--json``."""
    data = {name: getattr(person, name) for name in _PERSON_FIELDS}
    keys = [{name: getattr(key, name) for name in _KEY_FIELDS} for key in person.keys]
    return {**data, "keys": keys}
