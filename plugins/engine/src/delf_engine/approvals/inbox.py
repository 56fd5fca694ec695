"""Answers to requests for approval that other processes leave in the journal.

An answer is a note of the kind ``approval`` whose data :func:`answer_data` makes. It counts if its
request is pending in this process for the same action and arguments, even if it arrived during the
resume. Late answers are ignored; the task's events show their senders how the request was decided.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from delf.errors import (
    ConfigurationError,
    DelfError,
    JournalUnavailableError,
    UnknownRequestError,
)
from delf.events import with_user
from delf.machine.contexts import shared_task
from delf.network.outages import Outage
from delf.protocols.approval import Decider, Decision, Edited
from delf.protocols.journal import Journal, Note
from delf.protocols.shared_journal import SharedJournal
from delf_engine.approvals.decision import Answer, decision_data, decision_of
from delf_engine.approvals.pending import PendingRequests
from delf_engine.approvals.talk import REMARK_KIND, decode_remark

_log = logging.getLogger(__name__)

ANSWER_KIND: Final = "approval"
"""The kind of notes that carry an answer to the waiting process."""
_RETRY_SECONDS: Final = 0.5


async def open_journal(journal: Journal, lease: float | None = None) -> Journal:
    """Open a journal that several processes share; return any other journal unopened.

    Args:
        journal: A journal that was not used yet.
        lease: Seconds of silence after which other processes may claim the tasks of this process.

    Raises:
        ConfigurationError: If ``lease`` is given and the journal does not support leases.
        JournalUnavailableError: If the journal cannot be written.
    """
    if not isinstance(journal, SharedJournal):
        if lease is not None:
            raise ConfigurationError(
                "the journal has no leases",
                hint='use one that other processes share: journal = "sql"',
            )
        return journal
    if lease is not None:
        journal.lease(lease)
    try:
        await journal.open()
    except JournalUnavailableError:
        raise
    except DelfError as error:
        raise JournalUnavailableError(error.message, hint=error.hint) from error
    return journal


def answer_data(
    request_id: str, digest: str, decision: Decision, decider: Decider
) -> dict[str, Any]:
    """Encode a decision as a note in the journal's inbox.

    Args:
        request_id: The request.
        digest: The digest of the reviewed action and arguments.
        decision: The decision. An edit needs only the changed arguments, because the process that
            asked still has the others.
        decider: The person who decided.
    """
    head = {
        "request_id": request_id,
        "digest": digest,
        "by": decider.name,
        "user": decider.user,
        "teams": list(decider.teams),
        "via": decider.via,
    }
    return {**head, **decision_data(decision)}


def _decider_of(data: Mapping[str, Any]) -> Decider:
    """Return the author of an answer or a remark, called ``inbox`` if the data has no name.

    Another process wrote the data, so long names are truncated.
    """
    user = with_user(data).get("user")
    teams = data.get("teams")
    if not isinstance(teams, (list, tuple)):
        teams = ()
    name = str(data.get("by") or "inbox")
    via = str(data.get("via") or "")
    return Decider(
        name=name[:100],
        user=None if user is None else str(user),
        teams=tuple(map(str, cast("Sequence[object]", teams))),
        via=via[:200],
    )


class Inbox:
    """Watches the journal while requests are pending, and passes on answers.

    Args:
        journal: The journal. Only a shared journal can receive answers from other processes; any
            other journal is not watched.
        pending_requests: The requests of this process.
    """

    def __init__(self, journal: Journal, pending_requests: PendingRequests) -> None:
        self._journal = journal
        self._pending_requests = pending_requests
        self._watchers = 0
        self._watch: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watched(self) -> AsyncGenerator[None]:
        """Return a context manager that watches the journal for answers.

        Enter the context before a request is journalled, so that no answer is missed.
        """
        if not isinstance(self._journal, SharedJournal):
            yield
            return
        self._watchers += 1
        if self._watch is None or self._watch.done():
            notes = self._journal.subscribe_notes()
            self._watch = shared_task(self._pass_on_notes(notes, self._journal))
        try:
            yield
        finally:
            # Counted, because many requests share one subscription to the journal.
            self._watchers -= 1
            if self._watchers == 0:
                self._watch.cancel()
                self._watch = None

    async def pass_on_earlier_notes(self, task_id: str) -> None:
        """Pass on the answers and comments about a task that the inbox already contains."""
        if not isinstance(self._journal, SharedJournal):
            return
        try:
            notes = await self._journal.notes(task_id)
        except DelfError as error:
            _log.warning("earlier answers to %s cannot be read: %s", task_id, error.message)
            return
        for note in notes:
            if note.kind == REMARK_KIND:
                self._pass_on_remark(note)
        # The first answer that is passed on counts, so the newest answer comes first: a person
        # answers again only if the earlier answer had no effect.
        for note in reversed(notes):
            if note.kind == ANSWER_KIND:
                self._pass_on_answer(note)

    async def _pass_on_notes(self, notes: AsyncIterator[Note], journal: SharedJournal) -> None:
        """Give this process's pending requests the answers and comments of other processes.

        Continue until the journal closes.
        """
        outage = Outage(_log, "answers of other processes come late")
        position = 0
        while True:
            with outage.track(DelfError):  # suppresses the error, and the loop reads again
                async for note in notes:
                    outage.record_success()
                    position = note.position
                    if note.kind == ANSWER_KIND:
                        self._pass_on_answer(note)
                    elif note.kind == REMARK_KIND:
                        self._pass_on_remark(note)
                return  # the journal is closed
            await asyncio.sleep(_RETRY_SECONDS)
            # Continue after the last note that was read. If none was read yet, begin with the first
            # note of the journal, because notes may have arrived during the pause.
            notes = journal.subscribe_notes(after=position)

    def _pass_on_remark(self, note: Note) -> None:
        """Give the pending request a comment, or a new assignee, that another process recorded."""
        remark = decode_remark(note.data)
        if remark is None:
            _log.warning("note %d of the journal is no comment that can be read", note.position)
            return
        try:
            self._pending_requests.add_remark(
                str(note.data.get("request_id")), remark, _decider_of(note.data), note.position
            )
        except UnknownRequestError as error:
            _log.debug("a comment came late: %s", error.message)

    def _pass_on_answer(self, note: Note) -> None:
        """Give an answer from a note to its pending request; log an answer that does not count."""
        data = note.data
        decision = decision_of(data)
        if decision is None:
            _log.warning("note %d of the journal is not an answer that can be read", note.position)
            return
        request_id = str(data.get("request_id"))
        if isinstance(decision, Edited):
            # The note may have only the arguments that the person changed.
            request = self._pending_requests.find(request_id)
            arguments = {} if request is None else dict(request.arguments)
            decision = Edited(arguments={**arguments, **decision.arguments})
        try:
            answer = Answer(decision, _decider_of(data), note.position)
            self._pending_requests.submit(request_id, answer, digest=str(data.get("digest")))
        except UnknownRequestError as error:
            _log.debug("an answer came late: %s", error.message)
        except DelfError as error:
            _log.warning("an answer was not used: %s", error.message)
