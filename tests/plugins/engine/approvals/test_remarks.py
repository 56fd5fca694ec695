"""Remarks: comments and assignments of a pending request, shown in the channels."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from delf.events import ApprovalCommented, ApprovalVoted
from delf.protocols.approval import ApprovalRequest, Decider
from delf_devkit.testing import request_for
from delf_engine.approvals.channels import NamedChannel
from delf_engine.approvals.talk import Comment, RequestRemarks
from delf_engine.journal.log import TaskLog


class Room:
    """A channel that shows discussions."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, int]] = []

    async def decide(self, request: ApprovalRequest) -> None:
        """Leave the request to others."""

    async def show_discussion(self, request: Any, event: Any, discussion: Any) -> None:
        self.shown.append((event.text, len(discussion)))


async def test_comment_is_shown_although_a_vote_follows_at_once():
    request, room = request_for(), Room()
    events: list[Any] = []

    def vote(event: Any) -> None:
        if isinstance(event, ApprovalCommented):
            head = {"task_id": event.task_id, "seq": event.seq + 1, "at": event.at}
            events.append(ApprovalVoted(**head, request_id=request.request_id, by="Bo"))

    log = TaskLog("task_1", None, [vote])
    events = log.events
    remarks = RequestRemarks(request, log, [NamedChannel("room", room)])
    remarks.schedule_recording(Comment("why?"), Decider(name="Ann"), None)
    await asyncio.sleep(0)
    await remarks.wait_until_recorded()
    assert room.shown == [("why?", 0)]


class Leaving(Room):
    """A channel that ends the process."""

    async def show_discussion(self, request: Any, event: Any, discussion: Any) -> None:
        sys.exit(3)


async def test_exit_of_a_channel_does_not_keep_a_comment_from_others(
    caplog: pytest.LogCaptureFixture,
):
    room = Room()
    channels = [NamedChannel("leaving", Leaving()), NamedChannel("room", room)]
    remarks = RequestRemarks(request_for(), TaskLog("task_1", None, []), channels)
    remarks.schedule_recording(Comment("why?"), Decider(name="Ann"), None)
    await asyncio.sleep(0)
    await remarks.wait_until_recorded()
    assert room.shown == [("why?", 0)]
    assert "the channel leaving reports no comment" in caplog.text
