"""Team rules: the people who may decide about an action, and the number of votes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator


class ApprovalRule(BaseModel):
    """A table of ``[agent.approval_rules]``, whose key is a pattern of action names.

    People and teams share one namespace; ``local`` is the local user.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    approvers: tuple[str, ...] = Field(
        default=(), description="People and teams who may decide; anybody with the right, if empty."
    )
    four_eyes: bool = Field(
        default=False,
        description="The person who asked for the task, or shaped the call, does not approve it.",
    )
    two_of: tuple[str, ...] = Field(
        default=(), description="Two different people of these have to approve it."
    )

    @field_validator("approvers", "two_of", mode="before")
    @classmethod
    def _tuple_of_one(cls, value: Any) -> Any:
        """Convert a single name to a tuple."""
        return (value,) if isinstance(value, str) else value

    @property
    def deciders(self) -> tuple[str, ...]:
        """The people and teams whose decisions count; empty if anyone may decide.

        Without ``approvers``, the people in ``two_of`` decide, of whom two must approve.
        """
        return self.approvers or self.two_of

    @property
    def needs_others(self) -> bool:
        """True if the approver must be neither the task's submitter nor an editor of the call."""
        return self.four_eyes or bool(self.two_of)

    def data(self) -> dict[str, Any]:
        """Return the non-default parts of the rule, for events and interfaces."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ApprovalRule | None:
        """Return the rule from a request's data; None if no rule applies."""
        return cls.model_validate(dict(data)) if data else None
