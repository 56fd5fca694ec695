"""Comments and assignments of pending requests, recorded once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from delf.errors import DelfError
from delf.events import ApprovalAssigned, ApprovalCommented, ApprovalVoted, Event
from delf.protocols.approval import ApprovalRequest, Decider, SupportsDiscussion
from delf.records import dataclass
from delf_engine.approvals.channels import NamedChannel
from delf_engine.bounded import convert_exits_to_errors
from delf_engine.journal.log import TaskLog

_log = logging.getLogger(__name__)

REMARK_KIND: Final = "approval talk"
"""The kind of notes that carry a comment or an assignment to the waiting process."""
MAX_COMMENT_LENGTH: Final = 4000
"""The maximum number of characters of a comment on a request."""
MAX_REMARKS: Final = 200
"""The maximum number of comments and assignments of one request."""

Reaction = ApprovalVoted | ApprovalCommented | ApprovalAssigned


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on a request."""

    text: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """An assignment of a request to a person by name; with None, nobody is assigned."""

    to: str | None


Remark = Comment | Assignment
"""A remark of a person about a pending request, without a decision."""


def encode_remark(request_id: str, remark: Remark, decider: Decider) -> dict[str, Any]:
    """Encode a comment or an assignment as the data of a note in the journal.

    The process that waits for the decision of the request reads the note.
    """
    common_fields = {
        "request_id": request_id,
        "by": decider.name,
        "user": decider.user,
        "via": decider.via,
    }
    match remark:
        case Comment(text=text):
            return {**common_fields, "text": text}
        case Assignment(to=to):
            return {**common_fields, "to": to}


def decode_remark(data: Mapping[str, Any]) -> Remark | None:
    """Decode a comment or an assignment from the data of a journal's note; None if invalid."""
    match data:
        case {"text": str(text)} if text.strip():
            return Comment(text[:MAX_COMMENT_LENGTH])
        case {"to": str() | None as to}:
            return Assignment(to)
        case _:
            return None


def check_remark(remark: Remark, events: Iterable[Event]) -> None:
    """Check that a request can take another comment or assignment.

    Args:
        remark: The new comment or assignment.
        events: The events about the request.

    Raises:
        DelfError: If the comment is empty or too long, or the request has
            :data:`MAX_REMARKS` comments and assignments already.
    """
    if isinstance(remark, Comment) and not remark.text.strip():
        raise DelfError("the comment is empty")
    if isinstance(remark, Comment) and len(remark.text) > MAX_COMMENT_LENGTH:
        raise DelfError(f"the comment has more than {MAX_COMMENT_LENGTH:,} characters")
    earlier = [each for each in events if isinstance(each, (ApprovalCommented, ApprovalAssigned))]
    if len(earlier) >= MAX_REMARKS:
        raise DelfError(
            f"the request has {MAX_REMARKS} comments and assignments, and takes no more"
        )


def reactions_to(events: Iterable[Event], request_id: str) -> list[Reaction]:
    """Return the votes, comments and assignments of a request, in order."""
    return [
        event
        for event in events
        if isinstance(event, (ApprovalVoted, ApprovalCommented, ApprovalAssigned))
        and event.request_id == request_id
    ]


class RequestRemarks:
    """Records the comments and assignments of one pending request, and passes them on to channels.

    Args:
        request: The request.
        log: The log of the task.
        channels: The channels that show the request to people.
    """

    def __init__(
        self, request: ApprovalRequest, log: TaskLog, channels: Sequence[NamedChannel]
    ) -> None:
        self._request = request
        self._log = log
        self._channels = channels
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self._recording: list[Future[None]] = []

    def schedule_recording(
        self, remark: Remark, decider: Decider, inbox_position: int | None
    ) -> None:
        """Schedule the recording of a comment or an assignment; may be called from any thread.

        Args:
            remark: The comment or assignment.
            decider: The author.
            inbox_position: The position of the comment or assignment in the journal's inbox, if it
                came from there. A resumed task reads the inbox again, so a position that is already
                recorded is ignored.
        """
        recording = self._record(remark, decider, inbox_position)
        self._recording.append(asyncio.run_coroutine_threadsafe(recording, self._loop))

    async def wait_until_recorded(self) -> None:
        """Wait until all comments and assignments are recorded and passed on to the channels."""
        for recording in self._recording:  # grows meanwhile if more remarks come
            await asyncio.wait({asyncio.wrap_future(recording)})

    async def _record(self, remark: Remark, decider: Decider, inbox_position: int | None) -> None:
        """Record a comment or an assignment, unless it is recorded already, and tell the channels.

        Args:
            remark: The comment or assignment.
            decider: The author.
            inbox_position: The position of the note with the remark in the journal's inbox; None if
                the remark came another way.
        """
        async with self._lock:
            before = reactions_to(self._log.events, self._request.request_id)
            if inbox_position is not None:
                recorded_positions = {reaction.note for reaction in before}
                if inbox_position in recorded_positions:
                    return
            try:
                check_remark(remark, before)
                common_fields: dict[str, Any] = {
                    "request_id": self._request.request_id,
                    "by": decider.name,
                    "user": decider.user,
                    "note": inbox_position,
                    "via": decider.via,
                }
                match remark:
                    case Comment(text=text):
                        await self._log.record(ApprovalCommented, **common_fields, text=text)
                    case Assignment(to=to):
                        await self._log.record(ApprovalAssigned, **common_fields, to=to)
            except Exception as error:
                message = f"a comment or assignment of {decider.name} is not recorded"
                self._log.redactor.log_failure(_log, message, error)
                return
            after = reactions_to(self._log.events, self._request.request_id)
        await self._show_newest(after)

    async def _show_newest(self, reactions: Sequence[Reaction]) -> None:
        """Show the newest comment or assignment in the channels that can show a discussion.

        Args:
            reactions: The votes, comments and assignments of the request, in order.
        """
        # A vote may have been recorded after the remark.
        remarks = [each for each in reactions if not isinstance(each, ApprovalVoted)]
        newest = remarks[-1]
        earlier = reactions[: reactions.index(newest)]
        for channel in self._channels:
            if not isinstance(channel.channel, SupportsDiscussion):
                continue
            show = partial(channel.channel.show_discussion, self._request, newest, earlier)
            try:
                await convert_exits_to_errors(show)
            except Exception as error:  # the other channels must get the remark all the same
                self._log.redactor.log_failure(
                    _log, f"the channel {channel.name} reports no comment", error
                )
