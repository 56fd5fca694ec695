"""``Approvals``: what the tasks of one agent share when a person has to say yes."""

from __future__ import annotations

from fnmatch import fnmatchcase

from delf.protocols.journal import Journal
from delf.protocols.rules import ApprovalRule
from delf.records import dataclass
from delf_engine.approvals.channels import NamedChannel
from delf_engine.approvals.inbox import Inbox
from delf_engine.approvals.pending import PendingRequests
from delf_engine.config import AgentConfig


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """The approvals of one agent.

    Args:
        config: Mode, rules, flows and times, as the agent has them.
        channels: Who is asked, in order.
        pending: Where requests wait, for answers through the agent.
        inbox: Where other processes leave answers.
        journal: Where decisions are that hold until they are revoked.
        project: The folder of the project whose later tasks they hold for.
    """

    config: AgentConfig
    channels: tuple[NamedChannel, ...]
    pending: PendingRequests
    inbox: Inbox | None = None
    journal: Journal | None = None
    project: str = ""

    @property
    def is_strict(self) -> bool:
        """True if nobody is asked: what needs a person's approval is denied."""
        return self.config.approval_mode == "strict"

    @property
    def guards(self) -> bool:
        """True if a person looks at calls for where their values came from."""
        return self.config.flows in ("guard", "deny")

    @property
    def must_ask(self) -> bool:
        """True if a task that could ask nobody is not begun: the user has chosen the mode."""
        return "approval_mode" in self.config.model_fields_set

    def rule_of(self, action: str) -> ApprovalRule | None:
        """The team's rule for an action: of those that match, the one with the longest pattern."""
        rules = self.config.approval_rules
        found = [pattern for pattern in rules if fnmatchcase(action, pattern)]
        return rules[max(found, key=len)] if found else None
