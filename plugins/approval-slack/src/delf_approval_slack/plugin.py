"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import ApprovalSpec


@hookimpl
def delf_approval_channels() -> Iterable[ApprovalSpec]:
    """Yield the channel ``slack``."""
    yield ApprovalSpec(
        name="slack",
        summary="Asks in a Slack channel: approve, reject with a reason, or edit.",
        factory="delf_approval_slack.channel:SlackChannel",
        needs_presence=False,
        plugin_settings="delf_approval_slack.settings:SlackSettings",
    )
