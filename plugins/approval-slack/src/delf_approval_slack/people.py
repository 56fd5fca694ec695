"""People in Slack as deciders: by id, by user group, and as known people."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from delf.errors import ConfigurationError
from delf.protocols.approval import Decider
from delf.protocols.journal import Journal
from delf.protocols.people import Person, sees
from delf.protocols.shared_journal import SharedJournal
from delf.terminal import visible
from delf_approval_slack.failures import convert_failures
from delf_approval_slack.settings import SlackSettings

_GROUP_SECONDS: Final = 60.0
"""Seconds for which the members of a user group are known."""


class People:
    """Resolves people in Slack.

    Args:
        settings: The settings with approvers and their names in delf.
    """

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._journal: SharedJournal | None = None
        self._members: tuple[float, Mapping[str, frozenset[str]]] | None = None
        self._workspace: str | None = None

    def use_journal(self, journal: Journal) -> None:
        """Use a journal for rights and teams from now on."""
        self._journal = journal if isinstance(journal, SharedJournal) else None

    async def may(self, client: Any, user: Mapping[str, Any]) -> bool:
        """Return True if a person is an approver."""
        approvers, person = self._settings.approvers, str(user.get("id") or "")
        if person and person in approvers:
            return True
        if person and "*" in approvers and await self._is_colleague(client, user):
            return True
        return not (await self.groups_of(client, person)).isdisjoint(approvers)

    async def _is_colleague(self, client: Any, user: Mapping[str, Any]) -> bool:
        """Return True if a person belongs to the app's workspace or to one of the settings.

        A channel of Slack Connect has members of other companies, who can press buttons, too.
        """
        if self._workspace is None:
            with convert_failures("look up the app's workspace"):
                self._workspace = str((await client.auth_test()).get("team_id") or "")
        team = user.get("team_id")
        return bool(team) and team in (self._workspace, *self._settings.workspaces)

    async def groups_of(self, client: Any, user: str) -> frozenset[str]:
        """Return the user groups of a person, among those in the settings."""
        named = (*self._settings.approvers, *self._settings.names)
        groups = dict.fromkeys(group for group in named if group.startswith("S"))
        if self._members is None or self._members[0] < time.monotonic():
            members: dict[str, frozenset[str]] = {}
            for group in groups:
                with convert_failures(f"look up the user group {group}"):
                    answer = await client.usergroups_users_list(usergroup=group)
                members[group] = frozenset(map(str, answer.get("users") or ()))
            self._members = time.monotonic() + _GROUP_SECONDS, members
        return frozenset(group for group, users in self._members[1].items() if user in users)

    async def _everybody(self) -> list[Person]:
        if self._journal is None:
            return []
        try:
            return await self._journal.people()
        except ConfigurationError:
            return []  # the journal does not store people

    async def known(self, user: str) -> Person | None:
        """Return the journal's person that the settings assign to a Slack user."""
        name = self._settings.names.get(user)
        return next((person for person in await self._everybody() if person.name == name), None)

    async def sees(self, person: Person, owner: str | None) -> bool:
        """Return whether a person's scope covers the tasks of an owner, as on delf's page."""
        active = [one for one in await self._everybody() if one.revoked_at is None]
        return sees(person, active, owner)

    async def decider(self, client: Any, user: Mapping[str, Any]) -> Decider:
        """Return a Slack user as a decider.

        The display name in Slack never counts as a team's name.
        """
        names, person = self._settings.names, str(user.get("id"))
        called = visible(str(user.get("username") or user.get("name") or "somebody"))
        name = names.get(person) or f"{called.replace(':', '')} ({person})"
        groups = await self.groups_of(client, person)
        teams = {names[group] for group in groups if group in names}
        person_known = await self.known(person)
        return Decider(
            name=name,
            key=f"{name}:{person}" if person_known is None else person_known.holder,
            teams=tuple(sorted(teams.union(() if person_known is None else person_known.teams))),
            via="slack",
        )
