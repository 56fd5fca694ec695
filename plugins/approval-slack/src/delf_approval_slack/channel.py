"""``SlackChannel``: asks in a Slack channel, and waits for a person's buttons."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from delf.errors import DelfError
from delf.events import (
    DECISION_WORDS,
    EXPIRY_REASONS,
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalVoted,
    Event,
)
from delf.network.proxies import proxy_for
from delf.protocols.approval import (
    NO_REASON,
    AlreadyDone,
    Answered,
    ApprovalRequest,
    Approved,
    ChangesRequested,
    DecidedBy,
    Decision,
    Edited,
    Rejected,
)
from delf.protocols.facts import incomplete_text, value_text
from delf.protocols.journal import Journal, RequestRecord
from delf.protocols.rules import ApprovalRule
from delf.protocols.shared_journal import SharedJournal
from delf.values.encoding import is_same_data
from delf_approval_slack.blocks import (
    ANSWER,
    APPROVE,
    CHANGES,
    EDIT,
    HAPPENED,
    REASON,
    REJECT,
    RESULT,
    NotJsonError,
    answer_view,
    changes_view,
    decided_blocks,
    edit_view,
    edited_arguments,
    escape_markup,
    happened_view,
    lay_out,
    question_of,
    reject_view,
    result_of,
    story_of,
    title_of,
)
from delf_approval_slack.failures import (
    SlackUnavailableError,
    code_of,
    convert_failures,
    fields_of,
)
from delf_approval_slack.people import People
from delf_approval_slack.receivers import Http, SocketMode, receiver_of
from delf_approval_slack.settings import SlackSettings
from delf_cli.answering import refusal_reason
from delf_cli.answering import send as send_decision

_log = logging.getLogger(__name__)
_INSTANCE: Final = "approval_slack"
_MAX_THREADS: Final = 10_000
_MAX_RETRIES: Final = 3
_NOT_PENDING: Final = "This request is not pending any more."
# The kind of the journal notes that record which Slack message shows a request.
_NOTE_KIND: Final = "slack"
_THREAD_KEY: Final = "thread"
# Slack's errors for a message that the app cannot update any more: it was deleted, belongs to an
# earlier installation of the app, or is older than the workspace lets messages be edited.
_NOT_UPDATABLE: Final = ("message_not_found", "cant_update_message", "edit_window_closed")
_FILES_SUFFIX: Final = " files"
_POLL_SECONDS: Final = 0.25
# The maximum seconds to wait until the journal has the end of a request.
_END_SECONDS: Final = 10.0


@dataclass(eq=False)
class _Waiting:
    """A request of a task in this process, with the future of its decision."""

    request: ApprovalRequest
    answer: asyncio.Future[DecidedBy]


@dataclass(frozen=True)
class _PendingRequest:
    """A pending request of this or another process.

    Args:
        request: The request, which the journal provides if another process runs the task.
        waiting: The request with its future; None if another process runs the task.
        record: The request's record in the journal; None if processes do not share the journal.
    """

    request: ApprovalRequest
    waiting: _Waiting | None
    record: RequestRecord | None


class SlackChannel:
    """Implements :class:`delf.protocols.approval.ApprovalChannel` and ``SupportsQuestions``.

    Each task has a thread, whose first message is the task. Requests are posted in the thread and
    in the channel. The message of a decided request shows the decision.

    If processes share the journal, decisions are recorded in the journal. Any process of the app
    can therefore handle a button press, and a process that resumes a task finds the task's
    messages.

    Args:
        options: The fields of :class:`delf_approval_slack.settings.SlackSettings`; omitted fields
            come from the environment variables ``DELF_APPROVAL_SLACK_…``.

    Raises:
        ConnectionConfigurationError: If a setting is invalid.
    """

    def __init__(self, **options: Any) -> None:
        self._settings = SlackSettings.for_instance(_INSTANCE, options)
        self._journal: SharedJournal | None = None
        # The posted requests that wait for a decision.
        self._waiting_by_request_id: dict[str, _Waiting] = {}
        # The timestamp of the first message in each task's thread.
        self._threads_by_task_id: dict[str, str] = {}
        # The ids of requests that Slack does not show completely and cannot approve.
        self._incompletely_shown: set[str] = set()
        self._people = People(self._settings)
        # The client for Slack's Web API; None before the channel is opened.
        self._client: Any = None
        self.receiver: SocketMode | Http | None = None
        """The receiver of button presses and forms; None before the channel is opened."""
        self._is_closing = False
        self._open_lock = asyncio.Lock()
        # Prevents concurrent requests of a task from starting two threads.
        self._thread_lock = asyncio.Lock()
        self._background_tasks: set[asyncio.Task[None]] = set()

    def use_journal(self, journal: Journal) -> None:
        """Implements :class:`delf.protocols.journal.SupportsJournal`."""
        self._journal = journal if isinstance(journal, SharedJournal) else None
        self._people.use_journal(journal)

    # -- the channel ------------------------------------------------------------------------

    async def decide(self, request: ApprovalRequest) -> DecidedBy:
        """Post a request, and wait for an approver's decision.

        Raises:
            SlackUnavailableError: If the request cannot be posted.
        """
        client = await self.open()
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        # Register the request before posting it: a person may press a button as soon as the message
        # is there.
        self._waiting_by_request_id[request.request_id] = waiting
        decision_text: str | None = None
        posting = asyncio.create_task(self._post(client, request))
        try:
            # If this task is cancelled, the message is still posted, and then shows the decision.
            await asyncio.shield(posting)
            decided = await waiting.answer
            decision_text = f"{_decision_text(decided.decision)} by {decided.who.name}"
            return decided
        finally:
            self._waiting_by_request_id.pop(request.request_id, None)
            self._incompletely_shown.discard(request.request_id)
            self._in_background(self._show_decision(client, request, posting, decision_text))

    async def answer(self, request: ApprovalRequest) -> DecidedBy:
        """Post a script's question, and wait for an approver's answer.

        Raises:
            SlackUnavailableError: If the question cannot be posted.
        """
        return await self.decide(request)

    async def aclose(self) -> None:
        """Finish updating messages, and stop receiving button presses."""
        self._is_closing = True
        # Wait before the client is dropped: these tasks still replace buttons by decisions.
        if self._background_tasks:
            await asyncio.wait(self._background_tasks)
        receiver, self.receiver, self._client = self.receiver, None, None
        if receiver is not None:
            await receiver.aclose()

    async def open(self) -> Any:
        """Return Slack's client.

        The first call opens the client and the receiver of button presses.
        """
        async with self._open_lock:
            if self._client is None:
                proxy = proxy_for(self._settings.api_url)
                retry = AsyncRateLimitErrorRetryHandler(max_retry_count=_MAX_RETRIES)
                client = AsyncWebClient(
                    self._settings.bot_token.get_secret_value(),
                    base_url=self._settings.api_url,
                    retry_handlers=[retry],
                )
                # slack_sdk ignores NO_PROXY, so the proxy is set here. aiohttp supports no SOCKS
                # proxies, so checked_address() raises for such a proxy.
                client.proxy = None if proxy is None else proxy.checked_address(socks_module=None)
                receiver = receiver_of(self._settings, client, self.handle)
                try:
                    with convert_failures("listen to Slack"):
                        await receiver.open()
                except BaseException:  # the caller may be cancelled
                    await receiver.aclose()
                    raise
                self._client, self.receiver = client, receiver
            return self._client

    # -- messages -----------------------------------------------------------------------------

    async def _post(self, client: Any, request: ApprovalRequest) -> str:
        """Post the message of a request; return the message's timestamp, which is its id in Slack.

        If a process that died has posted the message, that message is updated instead. If Slack
        refuses the update, for example because a person has deleted the message, a new message is
        posted.
        """
        channel = self._settings.channel
        text = escape_markup(title_of(request))
        thread = await self._thread(client, request)
        message_ts = await self._recorded_message_ts(request.task_id, request.request_id)
        # A person may approve in Slack only what Slack shows completely.
        is_shown_completely = await self._upload_long_values(client, thread, request)
        page_url = self._settings.page_url
        blocks = question_of(request, offers_approval=is_shown_completely, page_url=page_url)
        with convert_failures("ask in Slack"):
            if message_ts is not None:
                try:
                    await client.chat_update(
                        channel=channel, ts=message_ts, text=text, blocks=blocks
                    )
                    return message_ts
                except SlackApiError as error:
                    if code_of(error) not in _NOT_UPDATABLE:
                        raise
            posted = await client.chat_postMessage(
                channel=channel,
                thread_ts=thread,
                reply_broadcast=True,
                text=text,
                blocks=blocks,
                unfurl_links=False,
                unfurl_media=False,
            )
        await self._record_message(request.task_id, request.request_id, str(posted["ts"]))
        return str(posted["ts"])

    async def _upload_long_values(self, client: Any, thread: str, request: ApprovalRequest) -> bool:
        """Upload long values as files; return True if Slack then shows the whole request.

        The files are uploaded before the message with the buttons is posted, so that nobody
        approves without having the files. A request that Slack does not show completely is added to
        ``_incompletely_shown``.
        """
        layout = lay_out(request)
        self._incompletely_shown.discard(request.request_id)
        is_shown = layout.shows_all_facts
        if layout.shows_all_facts and layout.files:
            is_shown = await self._upload_once(client, thread, request, layout.files)
        if not is_shown:
            self._incompletely_shown.add(request.request_id)
        return is_shown

    async def _upload_once(
        self, client: Any, thread: str, request: ApprovalRequest, files: Sequence[tuple[str, str]]
    ) -> bool:
        """Upload the files of a request, unless Slack has them; return False if this fails."""
        subject = f"{request.request_id}{_FILES_SUFFIX}"
        if await self._recorded_message_ts(request.task_id, subject) is not None:
            return True
        try:
            await self._upload(client, thread, files)
            await self._record_message(request.task_id, subject, thread)
        except SlackUnavailableError as error:
            _log.warning("%s", error.message)
            return False
        return True

    async def _thread(self, client: Any, request: ApprovalRequest) -> str:
        """Return the timestamp that identifies a task's thread; post the thread if needed."""
        async with self._thread_lock:
            thread = self._threads_by_task_id.get(request.task_id)
            thread = thread or await self._recorded_message_ts(request.task_id, _THREAD_KEY)
            if thread is None:
                with convert_failures("ask in Slack"):
                    posted = await client.chat_postMessage(
                        channel=self._settings.channel,
                        text=escape_markup(f"delf works on: {request.task[:200]}"),
                        blocks=story_of(request, self._settings.page_url),
                        unfurl_links=False,
                        unfurl_media=False,
                    )
                thread = str(posted["ts"])
                await self._record_message(request.task_id, _THREAD_KEY, thread)
            if len(self._threads_by_task_id) >= _MAX_THREADS:  # forget the oldest thread
                self._threads_by_task_id.pop(next(iter(self._threads_by_task_id)))
            self._threads_by_task_id[request.task_id] = thread
            return thread

    async def _recorded_message_ts(self, task_id: str, subject: str) -> str | None:
        """Return the timestamp of a message that the journal records; None if none is found.

        Args:
            task_id: The id of the task.
            subject: The id of the request whose message is wanted. With ``_FILES_SUFFIX``, its
                files; ``thread`` for the first message of the task's thread.
        """
        if self._journal is None:
            return None
        try:
            notes = await self._journal.notes(task_id)
        except DelfError as error:
            _log.warning("earlier messages in Slack are not known: %s", error.message)
            return None
        messages = [note.data for note in notes if note.kind == _NOTE_KIND]
        for message in reversed(messages):
            is_in_channel = message.get("channel") == self._settings.channel
            if is_in_channel and message.get("what") == subject:
                return str(message["ts"])
        return None

    async def _record_message(self, task_id: str, subject: str, ts: str) -> None:
        """Record a message in the journal, for a process that resumes the task."""
        if self._journal is None:
            return
        data = {"channel": self._settings.channel, "what": subject, "ts": ts}
        try:
            await self._journal.post(task_id, _NOTE_KIND, data)
        except DelfError as error:
            _log.warning("a message in Slack is not noted: %s", error.message)

    async def _upload(self, client: Any, thread: str, files: Sequence[tuple[str, str]]) -> None:
        uploads = [{"filename": name, "title": name, "content": text} for name, text in files]
        with convert_failures("send long values to Slack"):
            await client.files_upload_v2(
                channel=self._settings.channel, thread_ts=thread, file_uploads=uploads
            )

    async def _show_decision(
        self,
        client: Any,
        request: ApprovalRequest,
        posting: asyncio.Task[str],
        decision_text: str | None,
    ) -> None:
        """Wait until the request's message is posted, then replace its buttons by the decision.

        Do nothing if the message could not be posted, or if the request is still pending.
        """
        await asyncio.wait({posting})
        if posting.cancelled() or posting.exception() is not None:
            return  # no message to edit: the asker got the error
        decision_text = decision_text or await self._describe_decision_made_elsewhere(request)
        if decision_text is None:
            return  # still pending, until the task is resumed
        with convert_failures("say in Slack how it was decided"):
            await client.chat_update(
                channel=self._settings.channel,
                ts=posting.result(),
                text=escape_markup(f"{title_of(request)}: {decision_text}"),
                blocks=decided_blocks(request, decision_text),
            )

    async def _describe_decision_made_elsewhere(self, request: ApprovalRequest) -> str | None:
        """Describe how a request ended outside of this channel.

        Poll the journal for some seconds, because the journal may record the end later. Return None
        if the request is still pending then, or cannot be read.
        """
        journal = self._journal
        if journal is None:
            return "Decided elsewhere, or nobody waits for it any more."
        deadline = time.monotonic() + _END_SECONDS
        try:
            record = await _record(journal, request.request_id)
            while _is_pending(record):
                if self._is_closing or time.monotonic() > deadline:
                    return None
                await asyncio.sleep(_POLL_SECONDS)
                record = await _record(journal, request.request_id)
        except DelfError as error:
            _log.warning("how a question ended is not known: %s", error.message)
            return None
        return _end_text(record)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background; log a warning if Slack fails."""

        async def log_failure() -> None:
            try:
                await work
            except SlackUnavailableError as error:
                _log.warning("%s", error.message)

        task = asyncio.create_task(log_failure())
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    # -- people ---------------------------------------------------------------------------------

    async def handle(self, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """Handle a button press or a submitted form; return the reply to a form."""
        client = self._client
        if client is None:
            return None
        user = fields_of(payload.get("user"))
        match payload.get("type"):
            case "block_actions":
                for action in payload.get("actions") or ():
                    await self._handle_button(client, payload, user, fields_of(action))
            case "view_submission":
                return await self._handle_form(client, fields_of(payload.get("view")), user)
            case _:
                pass
        return None

    async def _handle_button(
        self,
        client: Any,
        payload: Mapping[str, Any],
        user: Mapping[str, Any],
        action: Mapping[str, Any],
    ) -> None:
        """Handle a button press; tell the person if the press has no effect."""
        if str(action.get("action_id")) not in _BUTTONS:
            return
        try:
            refusal = await self._apply_button(client, payload, user, action)
            if refusal is not None:
                with convert_failures("answer a person in Slack"):
                    await client.chat_postEphemeral(
                        channel=self._settings.channel, user=str(user.get("id")), text=refusal
                    )
        except DelfError as error:
            _log.warning("%s", error.message)

    async def _apply_button(
        self,
        client: Any,
        payload: Mapping[str, Any],
        user: Mapping[str, Any],
        action: Mapping[str, Any],
    ) -> str | None:
        """Decide, or open the form for the decision; return the reason if neither is possible."""
        decision, make_form = _BUTTONS[str(action.get("action_id"))]
        pending = await self._request_or_refusal(client, action.get("value"), user, decision)
        if isinstance(pending, str):
            return pending
        if make_form is None:  # the button alone is the decision
            return await self._decide(client, pending, decision, user)
        form = make_form(pending.request)
        trigger = str(payload.get("trigger_id"))
        with convert_failures("open a form in Slack"):
            await client.views_open(trigger_id=trigger, view=form)
        return None

    async def _handle_form(
        self, client: Any, view: Mapping[str, Any], user: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Decide a request as a submitted form says; return the form's field errors, if any."""
        blocks = fields_of(fields_of(view.get("state")).get("values"))
        fields = {name: _value(field) for name, field in blocks.items()}
        first_field = next(iter(fields), REASON)  # shows errors that are about no single field
        kind = str(view.get("callback_id"))
        # An empty decision is enough to find out whether the person may decide.
        example_decision, _ = _BUTTONS.get(kind, _BUTTONS[EDIT])
        try:
            pending = await self._request_or_refusal(
                client, view.get("private_metadata"), user, example_decision
            )
            if isinstance(pending, str):
                return _field_error(first_field, pending)
            if kind == CHANGES and not (fields.get(REASON) or "").strip():
                return _field_error(REASON, "say what the model should change")
            decision = _decision_of_form(kind, pending.request, fields)
            problem = await self._decide(client, pending, decision, user)
        except NotJsonError as error:
            return _field_error(error.field, "this is not JSON")
        except DelfError as error:
            # An error about an argument contains the argument's name, which its field has, too.
            invalid_field = next((name for name in fields if name in error.message), first_field)
            text = f"{error.message}: {error.hint}" if error.hint else error.message
            return _field_error(invalid_field, text)
        return None if problem is None else _field_error(first_field, problem)

    async def _request_or_refusal(
        self, client: Any, request_id: object, user: Mapping[str, Any], decision: Decision
    ) -> _PendingRequest | str:
        """Find a pending request, and check whether a person may decide.

        Args:
            client: Slack's client.
            request_id: The id of the request.
            user: The person, as Slack describes users.
            decision: The intended decision.

        Returns:
            The request, or the reason why the person cannot decide the request.
        """
        name = str(request_id)
        # None if no task of this process waits for the request.
        waiting = self._waiting_by_request_id.get(name)
        if self._journal is None:
            if waiting is None or waiting.answer.done():
                return _NOT_PENDING
            pending = _PendingRequest(waiting.request, waiting, None)
        else:
            record = await _record(self._journal, name)
            if record is None or not record.waits:
                return _NOT_PENDING
            request = record.requested if waiting is None else waiting.request
            pending = _PendingRequest(request, waiting, record)
        return await self._refusal(client, pending, user, decision) or pending

    async def _refusal(
        self, client: Any, pending: _PendingRequest, user: Mapping[str, Any], decision: Decision
    ) -> str | None:
        """Return the reason why a person cannot decide; None if the person can."""
        is_rejection = isinstance(decision, (Rejected, ChangesRequested))
        votes_and_comments = () if pending.record is None else pending.record.discussion
        is_shown_completely = (
            pending.request.request_id not in self._incompletely_shown
            and lay_out(pending.request, votes_and_comments).shows_all_facts
        )
        # Without seeing all facts, a person may reject the request but not approve it.
        if not is_rejection and not is_shown_completely:
            return f"{incomplete_text(pending.request)} Decide on the page or with delf."
        person = str(user.get("id") or "")
        if not await self._people.is_approver(client, user):
            return "You may not decide this: you are not one of the configured approvers."
        # A team's rule names people of delf, and the setting ``names`` maps Slack accounts to them.
        if pending.request.rule and person not in self._settings.names:
            return (
                "A team rule says who may decide this, and delf does not know your Slack account: "
                "ask for an entry in the setting `names`."
            )
        known_person = await self._people.known(person)
        record = pending.record
        if known_person is not None:
            name = known_person.name
            if known_person.revoked_at is not None or "decide" not in known_person.rights:
                return f"You may not decide this: {name} has no right to decide in delf."
            if record is not None and not await self._people.sees(known_person, record.task.user):
                return f"You may not decide this: {name} does not see the task in delf."
        if record is None:  # the processes do not share the journal
            return None
        return refusal_reason(record, await self._people.decider(client, user), decision)

    async def _decide(
        self, client: Any, pending: _PendingRequest, decision: Decision, user: Mapping[str, Any]
    ) -> str | None:
        """Apply a decision; return the reason if the decision does not count, None if it does."""
        decider = await self._people.decider(client, user)
        # Without a journal, the decision is passed to the task, which waits in this process.
        if self._journal is None or pending.record is None:
            if pending.waiting is not None and not pending.waiting.answer.done():
                pending.waiting.answer.set_result(DecidedBy(decision=decision, who=decider))
            return None
        decision_to_send = _with_only_changes(decision, pending.request.arguments)
        try:
            decided = await send_decision(self._journal, pending.record, decision_to_send, decider)
        except DelfError as error:
            return error.message
        if isinstance(decided, ApprovalVoted):
            discussion = (*pending.record.discussion, decided)
            status = f"approved by {decided.by}, another is needed"
            await self._update_question(client, pending.request, discussion, status)
        return None

    async def show_discussion(
        self,
        request: ApprovalRequest,
        event: ApprovalCommented | ApprovalAssigned,
        discussion: Sequence[Event],
    ) -> None:
        """Show a comment or an assignment in the message of its request.

        Args:
            request: The request.
            event: The comment or assignment.
            discussion: The earlier votes, comments and assignments of the request.
        """
        subject = f"comment by {event.by}"
        if isinstance(event, ApprovalAssigned):
            subject = f"assigned to {event.to or 'nobody'} by {event.by}"
        try:
            await self._update_question(await self.open(), request, (*discussion, event), subject)
        except SlackUnavailableError as error:
            _log.warning("%s", error.message)

    async def _update_question(
        self, client: Any, request: ApprovalRequest, discussion: Sequence[Event], subject: str
    ) -> None:
        """Update the message of a request with votes, comments and assignments.

        Args:
            client: Slack's client.
            request: The request.
            discussion: The votes, comments and assignments.
            subject: The latest vote, comment or assignment in words, for notifications.
        """
        message_ts = await self._recorded_message_ts(request.task_id, request.request_id)
        if message_ts is None:
            return
        layout = lay_out(request, discussion)
        # The files of the request come first; they were uploaded with the question.
        new_files = layout.files[len(lay_out(request).files) :]
        is_shown_completely = (
            request.request_id not in self._incompletely_shown and layout.shows_all_facts
        )
        if is_shown_completely and new_files:
            try:
                await self._upload(client, await self._thread(client, request), new_files)
            except SlackUnavailableError as error:
                _log.warning("%s", error.message)
                is_shown_completely = False
        blocks = question_of(
            request,
            offers_approval=is_shown_completely,
            page_url=self._settings.page_url,
            discussion=discussion,
        )
        with convert_failures("show comments and assignments in Slack"):
            await client.chat_update(
                channel=self._settings.channel,
                ts=message_ts,
                text=escape_markup(f"{title_of(request)}: {subject}"),
                blocks=blocks,
            )


async def _record(journal: SharedJournal, request_id: str) -> RequestRecord | None:
    """Return the journal's record of a request with this full id; None without a record."""
    records = await journal.find_requests(request_id)
    return next((record for record in records if record.requested.request_id == request_id), None)


def _needs_others(request: ApprovalRequest) -> bool:
    """Return True if a person who edits the call may not approve the edited call."""
    rule = ApprovalRule.from_data(request.rule)
    return rule is not None and rule.needs_others


def _is_pending(record: RequestRecord | None) -> bool:
    """Return True if a request is not decided, and its task goes on."""
    return record is not None and record.decided is None and not record.task.state.is_terminal


def _end_text(record: RequestRecord | None) -> str:
    """Describe how a request ended, such as ``Approved by ada``."""
    if record is None or record.decided is None:
        return "Nobody waits for it any more."
    decided = record.decided
    if decided.source in EXPIRY_REASONS:
        return f"{EXPIRY_REASONS[decided.source].capitalize()}."
    if decided.source != "person":  # delf decided, so that no person has to answer
        return "Nobody waits for it any more."
    outcome = DECISION_WORDS[decided.decision].capitalize()
    if decided.decision == "edited" and _needs_others(record.requested):
        outcome = "Edited, for another person to approve,"  # the end follows: "by ada"
    is_rejection = decided.decision in ("rejected", "changes_requested")
    details = ""
    if decided.answer is not None:
        details = f" ({value_text(decided.answer)})"
    elif is_rejection and decided.reason:
        details = f" ({decided.reason})"
    channel = f", {decided.via}" if decided.via else ""
    return f"{outcome}{details} by {decided.by}{channel}"


def _value(given: object) -> str | None:
    """Return the typed text of a form's field, or the value of the chosen option."""
    field = fields_of(fields_of(given).get("value"))
    return field.get("value") or fields_of(field.get("selected_option")).get("value")


_View = Callable[[ApprovalRequest], dict[str, Any]]
# A mapping from button to its decision and the form that it opens; None without a form.
_BUTTONS: Final[Mapping[str, tuple[Decision, _View | None]]] = {
    APPROVE: (Approved(), None),
    REJECT: (Rejected(), reject_view),
    CHANGES: (ChangesRequested(reason="to be given"), changes_view),
    EDIT: (Edited(arguments={}), edit_view),
    HAPPENED: (AlreadyDone(), happened_view),
    ANSWER: (Answered(""), answer_view),
}


def _decision_of_form(
    kind: str, request: ApprovalRequest, fields: Mapping[str, str | None]
) -> Decision:
    """Parse the decision in a submitted form.

    Raises:
        NotJsonError: If a field does not hold JSON.
        DelfError: If a value does not fit.
    """
    reason = (fields.get(REASON) or "").strip()
    if kind == REJECT:
        return Rejected(reason=reason or NO_REASON)
    if kind == CHANGES:
        return ChangesRequested(reason=reason)
    if kind == HAPPENED:
        result = result_of((fields.get(RESULT) or "").strip())
        return AlreadyDone(result=result, reason=reason or None)
    if kind == ANSWER:
        return _answer_to(request, fields.get(ANSWER) or "")
    arguments = edited_arguments(request, fields)  # the only other form is that of an edit
    if request.fit is not None:
        arguments = request.fit(arguments)
    return Edited(arguments=arguments)


def _answer_to(request: ApprovalRequest, text: str) -> Answered:
    """Parse the answer in a submitted form.

    Raises:
        DelfError: If the request is not a question, or the answer is invalid.
    """
    question = request.question
    if question is None:
        raise DelfError("this request is not a question")
    if question.choices:  # the form names a choice by its number
        choice_by_number = {str(number): choice for number, choice in enumerate(question.choices)}
        chosen = choice_by_number.get(text)
        if chosen is None:
            raise DelfError("choose an answer")
        text = chosen
    return Answered(question.read(text))


def _with_only_changes(decision: Decision, arguments: Mapping[str, Any]) -> Decision:
    """Return a decision without the edited arguments that are equal to the call's arguments.

    Only changed arguments are journalled: the process that asked still has the other arguments.
    """
    if not isinstance(decision, Edited):
        return decision
    changed = {
        name: value
        for name, value in decision.arguments.items()
        if name not in arguments or not is_same_data(arguments[name], value)
    }
    return Edited(arguments=changed)


def _field_error(field: str, why: str) -> dict[str, Any]:
    return {"response_action": "errors", "errors": {field: why[:150]}}


def _decision_text(decision: Decision) -> str:
    words = DECISION_WORDS[decision.kind].capitalize()
    match decision:
        case Rejected(reason=reason) | ChangesRequested(reason=reason):
            return f"{words} ({reason})"
        case Answered(answer=answer):
            return f"{words} ({value_text(answer)})"
        case _:
            return words
