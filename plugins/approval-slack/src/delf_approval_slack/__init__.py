"""Approvals in Slack for delf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delf_approval_slack.channel import SlackChannel

__all__ = ["SlackChannel"]


def __getattr__(name: str) -> Any:
    if name != "SlackChannel":
        raise AttributeError(f"module 'delf_approval_slack' has no attribute {name!r}")
    from delf_approval_slack.channel import SlackChannel

    return SlackChannel
