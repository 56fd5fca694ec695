"""``Approvals``: the shared state of approvals of one agent's tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from delf.protocols.approval import SupportsQuestions
from delf.protocols.journal import Journal
from delf.protocols.rules import ApprovalRule
from delf.records import dataclass
from delf_engine.approvals.channels import NamedChannel, QuestionCallback
from delf_engine.approvals.inbox import Inbox
from delf_engine.approvals.pending import PendingRequests
from delf_engine.config import ARROW, AgentConfig
from delf_engine.task import TaskRequest


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """The approval settings, channels and pending requests of one agent, shared by its tasks.

    Args:
        config: The agent's approval mode, rules, data flow rules and timeouts.
        channels: The channels to ask, in order.
        pending_requests: The pending requests.
        inbox: The inbox for answers of other processes.
        journal: The journal with lasting decisions.
        project: The folder of the project; a lasting decision holds for one project.
    """

    config: AgentConfig
    channels: tuple[NamedChannel, ...]
    pending_requests: PendingRequests
    inbox: Inbox | None = None
    journal: Journal | None = None
    project: str = ""

    @property
    def is_strict(self) -> bool:
        """True if nobody is asked: calls that need a person's approval are denied."""
        return self.config.approval_mode in ("strict", "read_only")

    @property
    def guards(self) -> bool:
        """True if the origins of values decide whether a person reviews a call."""
        return self.config.flows in ("guard", "deny")

    def may_wait(self, task: TaskRequest, *, is_question: bool = False) -> bool:
        """Return whether a person may decide later, in this program or in another process."""
        # In modes such as ``strict``, people are not asked questions: only ``on_ask`` answers.
        if is_question and self.config.approval_mode != "interactive":
            return False
        return task.wait_approvals or self.config.wait_approvals

    def channels_for(self, task: TaskRequest, *, is_question: bool) -> Sequence[NamedChannel]:
        """Return the channels to ask for a task, in order.

        For questions, only channels that support questions are returned. In a mode other than
        ``interactive``, only the program's ``on_ask`` answers questions.

        Args:
            task: The task.
            is_question: Whether the channels are for questions of scripts instead of approvals.
        """
        channels = list(self.channels)
        if not task.interactive:
            channels = [named for named in channels if not named.needs_presence]
        if not is_question:
            return channels
        channels = [named for named in channels if isinstance(named.channel, SupportsQuestions)]
        if self.config.approval_mode == "interactive":
            return channels
        return [named for named in channels if isinstance(named.channel, QuestionCallback)]

    def can_answer(self, task: TaskRequest) -> bool:
        """Return whether somebody may be able to answer a task's questions.

        A channel can ask a person now, or the task can wait until a person answers.
        """
        if self.may_wait(task, is_question=True):
            return True
        return any(named.can_ask for named in self.channels_for(task, is_question=True))

    def rule_of(self, action: str) -> ApprovalRule | None:
        """Return the team's rule for an action; None if no team rule matches the action.

        A setting that is only a word, such as "approve", is not a team rule. Among several matching
        rules, the rule with the longest pattern counts.
        """
        rules_by_pattern = {
            pattern: rule
            for pattern, rule in self._rules_about(action).items()
            if isinstance(rule, ApprovalRule)
        }
        if not rules_by_pattern:
            return None
        longest_pattern = max(rules_by_pattern, key=len)
        return rules_by_pattern[longest_pattern]

    def is_approved(self, action: str) -> bool:
        """Return whether a rule of the settings approves an action beforehand."""
        return "approve" in self._rules_about(action).values()

    def _rules_about(self, action: str) -> Mapping[str, ApprovalRule | str]:
        rules = self.config.approval_rules.items()
        return {pattern: rule for pattern, rule in rules if fnmatchcase(action, pattern)}

    @property
    def approved_flows(self) -> Sequence[str]:
        """The data flows that need no review."""
        return [flow for flow in self.config.approval_rules if ARROW in flow]
