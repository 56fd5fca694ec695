"""People in Slack as deciders: by id, by user group, and as known people."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, Final

from delf.protocols.approval import Decider
from delf.protocols.journal import Journal
from delf.protocols.people import Person, sees
from delf.protocols.shared_journal import SharedJournal
from delf.terminal import visible
from delf_approval_slack.failures import convert_failures
from delf_approval_slack.settings import SlackSettings

# The seconds for which the members of user groups are cached.
_GROUP_SECONDS: Final = 60.0


class People:
    """The people in Slack, with their groups, rights, and names in delf.

    Args:
        settings: The settings with approvers and their names in delf.
    """

    def __init__(self, settings: SlackSettings) -> None:
        self._settings = settings
        self._journal: SharedJournal | None = None
        self._members_by_group: Mapping[str, frozenset[str]] = {}
        self._members_expire_at = -math.inf  # on the monotonic clock
        self._workspace: str | None = None

    def use_journal(self, journal: Journal) -> None:
        """Set the journal that has people's rights and teams."""
        self._journal = journal if isinstance(journal, SharedJournal) else None

    async def is_approver(self, client: Any, user: Mapping[str, Any]) -> bool:
        """Return True if a person is an approver."""
        approvers = self._settings.approvers
        person = str(user.get("id") or "")
        if not person:
            return False
        if person in approvers:
            return True
        if "*" in approvers and await self._is_colleague(client, user):
            return True
        return not (await self.groups_of(client, person)).isdisjoint(approvers)

    async def _is_colleague(self, client: Any, user: Mapping[str, Any]) -> bool:
        """Return True if a person belongs to the app's workspace or to a configured workspace.

        Channels of Slack Connect have members of other companies, who can press buttons, too.
        """
        if self._workspace is None:
            with convert_failures("look up the app's workspace"):
                self._workspace = str((await client.auth_test()).get("team_id") or "")
        team = user.get("team_id")
        return bool(team) and team in (self._workspace, *self._settings.workspaces)

    async def groups_of(self, client: Any, user: str) -> frozenset[str]:
        """Return the ids of the configured user groups to which a person belongs."""
        if self._members_expire_at < time.monotonic():
            configured_ids = (*self._settings.approvers, *self._settings.names)
            # Slack's ids of user groups begin with S, the ids of users with U or W.
            groups = dict.fromkeys(group for group in configured_ids if group.startswith("S"))
            members: dict[str, frozenset[str]] = {}
            for group in groups:
                with convert_failures(f"look up the user group {group}"):
                    answer = await client.usergroups_users_list(usergroup=group)
                members[group] = frozenset(map(str, answer.get("users") or ()))
            self._members_by_group = members
            self._members_expire_at = time.monotonic() + _GROUP_SECONDS
        return frozenset(group for group, users in self._members_by_group.items() if user in users)

    async def _everybody(self) -> list[Person]:
        return [] if self._journal is None else await self._journal.people()

    async def known(self, user: str) -> Person | None:
        """Return the person in the journal to whom the settings map a Slack user, else None.

        Args:
            user: The id of the Slack user.
        """
        name = self._settings.names.get(user)
        return next((person for person in await self._everybody() if person.name == name), None)

    async def sees(self, person: Person, user: str | None) -> bool:
        """Return whether a person may see a user's tasks; ``user`` is None for the local user."""
        active = [each for each in await self._everybody() if each.revoked_at is None]
        return sees(person, active, user)

    async def decider(self, client: Any, user: Mapping[str, Any]) -> Decider:
        """Return a Slack user as a decider.

        With the setting ``names = {"U1": "ada", "S1": "managers"}``, the user ``U1`` is named
        ``ada``, and the members of the user group ``S1`` are in the team ``managers``.
        """
        names_by_id = self._settings.names
        user_id = str(user.get("id"))
        chosen_name = visible(str(user.get("username") or user.get("name") or "somebody"))
        # The colon separates the parts of a user ``NAME:ID``, so a chosen name must have none.
        name = names_by_id.get(user_id) or f"{chosen_name.replace(':', '')} ({user_id})"
        # Teams come from the settings and the journal only: anybody can choose any name in Slack.
        group_ids = await self.groups_of(client, user_id)
        teams = {names_by_id[group_id] for group_id in group_ids if group_id in names_by_id}
        known_person = await self.known(user_id)
        if known_person is None:
            decider_user = f"{name}:{user_id}"
        else:
            teams.update(known_person.teams)
            decider_user = known_person.user  # with the person's id in the journal
        return Decider(name=name, user=decider_user, teams=tuple(sorted(teams)), via="slack")
