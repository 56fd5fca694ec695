"""Tasks: submitted, found, stopped and resumed through the journal."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delf.errors import (
    ConfigurationError,
    DelfError,
    JournalFailedError,
    JournalUnavailableError,
    UnknownTaskError,
    UnreadableEventError,
)
from delf.events import (
    ASKED_FROM,
    ApprovalDecided,
    ApprovalRequested,
    ApprovalVoted,
    Event,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
    end_event,
    make_end_event,
    start_event,
)
from delf.machine.contexts import shared_task
from delf.network.outages import Outage
from delf.protocols.conversation import USER_SEPARATOR, conversation_of, user_of
from delf.protocols.journal import Ages, ListPlace, RequestRecord, TaskRecord
from delf.protocols.people import check_may_run, name_of_user
from delf.protocols.shared_journal import SharedJournal
from delf.protocols.states import state_of
from delf.types import TaskState, Trust
from delf.values.encoding import to_jsonable
from delf.values.frozen import thaw
from delf_cli.answering import why_not_approve
from delf_engine.changes import OTHER_AUTHORS_KEY
from delf_engine.elsewhere import MAX_REQUESTS, find_tasks
from delf_engine.inputs import recorded_files
from delf_engine.models.money import SharedLedger
from delf_engine.outputs import Output
from delf_engine.retention import prune, remove
from delf_engine.task import MODEL, TRUST, VARIABLES
from delf_engine.views import prompts as views
from delf_engine.views.snapshot import snapshot
from delf_serve.budgets import Budgets
from delf_serve.channel import EndNotices
from delf_serve.files import Uploads
from delf_serve.keys import Caller, Keys
from delf_serve.problems import ProblemError
from delf_serve.schemas import (
    AgainRequest,
    ForkRequest,
    OutputFile,
    Prompt,
    PromptList,
    RunRequest,
    Task,
    TaskDecision,
    TaskDetail,
)
from delf_serve.settings import ServeSettings

if TYPE_CHECKING:
    from delf import Agent

_log = logging.getLogger(__name__)

SERVER_FIELD: Final = "serve"
"""The ``setup`` field that marks a task as submitted by a server."""
# The key, in the value of this field, of the digest of the request that submitted the task.
_DIGEST_FIELD: Final = "order"
LOOK_SECONDS: Final = 5.0
# The maximum seconds to wait for the first event of a resumed task.
_FIRST_EVENT_SECONDS: Final = 5.0
PAGE: Final = 1000
"""The number of interrupted tasks that are read from the journal at a time."""
_FORGET_SECONDS: Final = 3600.0
_MAX_RESUMES: Final = 5
# The period in seconds for counting a task's resumes.
#
# A task that is resumed too often in this period may kill its process. The server leaves such a
# task interrupted until a person resumes it.
_RESUMES_SECONDS: Final = 600.0
# The maximum number of recent tasks of this process whose users are cached.
_MAX_USERS: Final = 10_000
CLIENT_CONVERSATION_PREFIX: Final = "client-turn:"
"""The prefix of names of conversations that the client keeps and sends with each request."""
_CANDIDATES_PER_PAGE: Final = 50
_MAX_CANDIDATE_PAGES: Final = 40
# The number of characters of a task's text, from its start, that the journal searches for.
_SEARCH_CHARACTERS: Final = 200

Waiting = Mapping[str, Sequence[RequestRecord]]
"""Pending requests by task id."""


def has_right(record: RequestRecord, caller: Caller) -> bool:
    """Return True if a caller has the right to decide a request.

    Approval rules are not considered: a rule may still forbid the decision. A question can also be
    answered by the user of its task.
    """
    user_of_task = record.task.user
    is_own_question = record.requested.is_question and user_of_task == caller.user
    return "decide" in caller.rights or (is_own_question and "run" in caller.rights)


def may_decide(record: RequestRecord, caller: Caller) -> bool:
    """Return True if a person may approve a pending request, or answer a pending question."""
    if not record.waits or not has_right(record, caller):
        return False
    return why_not_approve(record, caller.decider()) is None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The result of submitting a task.

    Args:
        task_id: The id of the task.
        conversation: The id of the task's conversation; None without a conversation.
        is_new: False if an earlier request with the same idempotency key created the task.
    """

    task_id: str
    conversation: str | None
    is_new: bool = True


@dataclass(frozen=True, kw_only=True)
class _Submission:
    """A task to submit. Most fields are the arguments of :meth:`Tasks.submit`.

    Args:
        order: The request.
        caller: The user of the task.
        conversation: The stored name of the conversation.
        strategy: A strategy instead of the agent's.
        paths: The paths of input files.
        variables: Variables for scripts, with data from another service.
        trust: ``own`` if the user wrote the task's text, else ``outside``.
        setup: Data about the request that the task's record keeps.
    """

    order: RunRequest
    caller: Caller
    conversation: str | None
    strategy: str | None
    paths: Sequence[str] | None
    variables: Mapping[str, Any] | None
    trust: Trust
    setup: dict[str, Any]


@dataclass
class _RunningTask:
    """The state of a task that runs in this process.

    Args:
        user: The user of the task; None for the local user.
        recorded: Set when the task is in the journal, or its start has failed.
        started: Set at the first new event of a resumed task, or when the task has ended.
        start_error: The error that ended a resumed task before its first new event.
        over: Set when the task has ended.
        work: The asyncio task that waits for the end of the work; None before the task is recorded.
    """

    user: str | None
    recorded: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    start_error: DelfError | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[Any] | None = None


class Tasks:
    """The tasks of an agent's journal, as the API shows and changes them.

    Args:
        agent: The agent.
        settings: The limits.
        uploads: The uploaded files.
        keys: The people who may use the server, and their API keys.
    """

    def __init__(self, agent: Agent, settings: ServeSettings, uploads: Uploads, keys: Keys) -> None:
        self._agent = agent
        self._keys = keys
        self.budgets = Budgets(settings.budgets, keys, lambda: self.journal)
        self._uploads = uploads
        self._settings = settings
        self._running_tasks: dict[str, _RunningTask] = {}
        self._users_by_task_id: dict[str, str | None] = {}
        self._is_shutting_down = False
        self._end_notices = EndNotices(settings, keys, lambda: self.journal)
        # Interrupted tasks that this server leaves alone, because they are not tasks of a server of
        # this project, were resumed too often, or cannot be read.
        self._tasks_not_to_resume: set[str] = set()
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._pending_requests_lock = asyncio.Lock()
        self._next_read_of_pending_requests: asyncio.Task[Waiting] | None = None
        self._journal: SharedJournal | None = None

    @property
    def journal(self) -> SharedJournal:
        """The agent's journal."""
        if self._journal is None:
            self._journal = shared(self._agent)
        return self._journal

    @property
    def working(self) -> int:
        """The number of tasks running in this process."""
        return len(self._running_tasks)

    def start(self) -> None:
        """Start resuming tasks of dead processes, and removing old tasks."""
        self._is_shutting_down = False
        self._background_tasks.add(shared_task(self._keep_adopting()))
        if ages := self.journal.keep:
            self._background_tasks.add(shared_task(self._keep_forgetting(ages)))

    async def stop(self, seconds: float) -> None:
        """Wait until running tasks end, except tasks that wait for a person.

        Unfinished tasks are not stopped here. The journal has their events, so that another process
        can resume them.

        Args:
            seconds: The maximum time to wait.
        """
        for work in self._background_tasks:  # the server's own loops
            work.cancel()
        # The shutdown does not wait for a task that waits for a person, which may take days.
        pending_requests: Waiting = {}
        try:
            pending_requests = await self.pending_requests()
        except DelfError as error:
            _log.warning("tasks that wait for people are not known: %s", error.message)
        ends = [
            task.over.wait()
            for task_id, task in self._running_tasks.items()
            if task_id not in pending_requests
        ]
        if ends:
            await asyncio.wait([asyncio.ensure_future(end) for end in ends], timeout=seconds)

    # -- handing in -----------------------------------------------------------------------

    async def submit(
        self,
        order: RunRequest,
        caller: Caller,
        *,
        idempotency_key: str | None = None,
        key_scope: str | None = None,
        strategy: str | None = None,
        client: str | None = None,
        paths: Sequence[str] | None = None,
        other_authors: Sequence[str] = (),
        external_variables: Mapping[str, Any] | None = None,
        trust: Trust = "own",
    ) -> Submitted:
        """Submit a task, and return once the journal has recorded it.

        Args:
            order: The request.
            caller: The user of the task.
            idempotency_key: A key that makes repeated requests return the first request's task.
            key_scope: A name for the requests among which the key is unique; by default the
                caller's name.
            strategy: A strategy instead of the agent's.
            client: The client's address.
            paths: The paths of input files besides the request's uploads. The task gets the agent's
                files only if this is None and the request has no uploads.
            other_authors: The names of other people who wrote parts of the task's text.
            external_variables: Variables for scripts, with data from another service. If
                ``strategy`` is set, the task's text contains these data, too, and is not trusted.
            trust: ``own`` if the user wrote the task's text, ``outside`` for anybody else.
        """
        self._check_model(order.llm)
        if order.output is not None:
            _check_output(order.output)
        # With a strategy, the task's text contains the untrusted values of these variables.
        if external_variables is not None and strategy is not None:
            trust = "outside"
        # Without a key, the digest is empty. The digest of a request with a key is never empty.
        digest = "" if idempotency_key is None else _digest(order)
        submission = _Submission(
            order=order,
            caller=caller,
            conversation=self._conversation_name(order, caller),
            strategy=strategy,
            paths=paths,
            variables=external_variables,
            trust=trust,
            setup=_setup(caller, client, other_authors, request_digest=digest),
        )
        if idempotency_key is None:
            return await self._submit_new(f"task_{secrets.token_hex(8)}", submission)
        # Every server derives the same id, so that concurrent requests start one task.
        task_id = _task_id_of_key(idempotency_key, key_scope or caller.user or caller.name)
        return await self._submit_once(task_id, submission, digest)

    async def _submit_once(self, task_id: str, submission: _Submission, digest: str) -> Submitted:
        """Submit a task, or return the task that an earlier request with the same key submitted.

        Args:
            task_id: The id of the task, which is derived from the idempotency key.
            submission: The task.
            digest: The digest of the request, which must equal that of the earlier request.
        """
        earlier = await self._find_submitted(task_id, digest)
        if earlier is None:
            try:
                return await self._submit_new(task_id, submission)
            except DelfError:
                # If a concurrent request to another server was faster, the journal has refused the
                # second task with the same id.
                earlier = await self._find_first_event(task_id, digest)
                if earlier is None:
                    raise
        return _submitted(task_id, earlier.conversation, submission.caller, is_new=False)

    async def _submit_new(self, task_id: str, submission: _Submission) -> Submitted:
        """Submit a task that no earlier request has submitted."""
        caller = submission.caller
        # Repeated requests are not checked: their task was accepted when conversations were kept.
        if submission.conversation is not None and self._agent.chat is None:
            raise ProblemError(409, "the agent keeps no conversations", param="conversation_id")
        self._raise_if_too_many_are_open(caller)
        # Register the task before the first await, so that limits and equal requests see it.
        running_task = self._running_tasks[task_id] = _RunningTask(caller.user)
        # If the client disconnects, this method is cancelled, and the task is still submitted.
        await asyncio.shield(self._submit_and_record(task_id, submission, running_task))
        return _submitted(task_id, submission.conversation, caller)

    async def _submit_and_record(
        self, task_id: str, submission: _Submission, running_task: _RunningTask
    ) -> None:
        """Submit a task to the agent, and return once the journal has recorded it."""
        order = submission.order
        caller = submission.caller
        try:
            ledger = await self.budgets.ledger(caller, self._agent.ledger)
            handle = await self._agent.asubmit(
                order.task,
                order.timeout,
                task_id=task_id,
                conversation_id=submission.conversation,
                files=await self._input_files(order, caller, submission.paths),
                user=caller.user,
                ledger=ledger,
                output=order.output,
                strategy=submission.strategy,
                llm=order.llm,
                variables=submission.variables,
                trust=submission.trust,
                setup=submission.setup,
                listeners=[partial(self._handle_end, task_id, running_task)],
                before_start=partial(self._check_user, caller.user),
            )
        except BaseException:
            self._forget_running(task_id, running_task)
            raise
        else:
            self._remember_user(task_id, running_task.user)
            running_task.work = asyncio.create_task(
                self._forget_at_end(task_id, running_task, handle)
            )
        finally:
            running_task.recorded.set()  # equal requests wait for this in _find_submitted()

    async def _forget_at_end(
        self, task_id: str, running_task: _RunningTask, work: Awaitable[object]
    ) -> None:
        """Stop counting a task as open when its work ends, even if no event reports the end."""
        try:
            with contextlib.suppress(DelfError):  # the journal has the reason, or cannot be written
                await work
        finally:
            self._forget_running(task_id, running_task)

    def _handle_end(self, task_id: str, running_task: _RunningTask, event: Event) -> None:
        """Listen to the events of a running task for its end."""
        if isinstance(event, TaskFinished):
            # Stop counting the task now, before its work is done: a client that reads this event
            # may submit its next task at once.
            self._forget_running(task_id, running_task)
            self._end_notices.tell(event)

    def _raise_if_too_many_are_open(self, caller: Caller) -> None:
        """Raise ``ProblemError`` if the caller has the most open tasks that the settings allow."""
        max_tasks = self._settings.open_tasks
        open_tasks = [task for task in self._running_tasks.values() if task.user == caller.user]
        if len(open_tasks) >= max_tasks:
            raise ProblemError(429, f"{max_tasks:,} of your tasks are open")

    async def _input_files(
        self, order: RunRequest, caller: Caller, paths: Sequence[str] | None
    ) -> list[str] | None:
        """Return the paths of a task's input files; None if the task uses the agent's files.

        A task uses the agent's files if its request names no uploads and ``paths`` is None.
        """
        uploaded_paths = await self._uploads.paths(caller, order.files)
        if uploaded_paths is None and paths is None:
            return None
        return [*(uploaded_paths or ()), *(paths or ())]

    def _conversation_name(self, order: RunRequest, caller: Caller) -> str | None:
        """Return the stored name of a task's conversation, which is new if the request names none.

        Return None if the request names none, and the agent keeps no conversations.
        """
        name = stored_name(order.conversation_id, caller)
        if self._agent.chat is not None and name is None:
            return stored_name(f"web-{secrets.token_hex(6)}", caller)
        return name

    async def repeat(
        self, task_id: str, wanted: AgainRequest, caller: Caller, client: str | None = None
    ) -> Submitted:
        """Submit a task again, with its files, variables, type of answer and conversation.

        If the conversation belongs to another person, the new task starts a new conversation.

        Args:
            task_id: The id of the earlier task.
            wanted: The changes to the task.
            caller: The user of the new task.
            client: The client's address.

        Raises:
            ProblemError: If an input file is missing, if a task with a new text would get files of
                another person, or if the model is not available to the caller.
        """
        record = await self._by_full_id(task_id, caller)
        events = await self.journal.read(record.task_id)
        first_event = start_event(events)
        assert first_event is not None  # noqa: S101 - each task has this event
        paths = recorded_files(first_event.setup)
        earlier_user = first_event.user
        if paths and wanted.task is not None and earlier_user != caller.user:
            raise ProblemError(
                403,
                "the task has files of another person, which only a task with the same words gets",
                "leave out `task`, or start a task with files of your own",
                param="task",
            )
        missing_file = await asyncio.to_thread(_find_missing, paths or ())
        if missing_file is not None:
            raise ProblemError(
                409,
                f"the file {missing_file!r} of the task is no longer stored",
                "send it in again",
            )
        conversation = first_event.conversation
        conversation_id: str | None = None
        if conversation is not None and user_of(conversation) == caller.user:
            conversation_id = shown_name(conversation, caller)
        order = RunRequest.model_construct(
            task=wanted.task or first_event.task,
            timeout=wanted.timeout,
            conversation_id=conversation_id,
            llm=wanted.llm or first_event.setup.get(MODEL),
            output=to_jsonable(first_event.setup.get("output")),
        )
        # A new text need not call the same routine or worker: use the agent's own strategy.
        strategy = None if wanted.task else first_event.setup.get("strategy")
        # The other people whose words are in the task: its earlier users.
        other_authors = list(first_event.setup.get(OTHER_AUTHORS_KEY, ()))
        if earlier_user != caller.user:
            other_authors.append(name_of_user(earlier_user))
        return await self.submit(
            order,
            caller,
            strategy=strategy,
            client=client,
            paths=None if paths is None else [str(path) for path in paths],
            other_authors=other_authors,
            external_variables=thaw(first_event.setup.get(VARIABLES)),
            # A new text keeps this trust, too, because it may repeat words from outside.
            trust=first_event.setup.get(TRUST, "own"),
        )

    def _check_model(self, name: str | None) -> None:
        models = self._settings.models
        if name is not None and name not in models:
            choices = f"one of {', '.join(models)}" if models else "this server has one model alone"
            raise ProblemError(409, f"the model cannot be chosen: {choices}", param="llm")

    async def _find_submitted(self, task_id: str, digest: str) -> TaskQueued | TaskStarted | None:
        """Return the first event of the task that an earlier equal request submitted.

        If another request is submitting the task at this moment, wait until the task is recorded.

        Args:
            task_id: The id of the task, which is derived from the idempotency key.
            digest: The digest of the request.

        Returns:
            The event; None if there is no such task.

        Raises:
            ProblemError: If the task was deleted, or belongs to a different request.
        """
        while True:
            earlier = await self._find_first_event(task_id, digest)
            running_task = self._running_tasks.get(task_id)
            if earlier is not None or running_task is None:
                return earlier
            await running_task.recorded.wait()

    async def _find_first_event(self, task_id: str, digest: str) -> TaskQueued | TaskStarted | None:
        """Return the first event of the task of an idempotency key; None if there is no task.

        Args:
            task_id: The id of the task, derived from the key.
            digest: The digest of the present request, which must equal the digest of the request
                that started the task.

        Raises:
            ProblemError: If the task was deleted, or belongs to a different request.
        """
        try:
            events = await self.journal.read(task_id)
        except UnknownTaskError:
            if await self.journal.was_removed(task_id):
                raise ProblemError(
                    409,
                    "the task of this message or idempotency key was deleted, and is not started "
                    "again",
                    "use a new key or message id for a new task",
                ) from None
            return None
        first = events[0]
        if not isinstance(first, (TaskQueued, TaskStarted)):
            return None
        digest_of_first_request = first.setup.get(SERVER_FIELD, {}).get(_DIGEST_FIELD)
        if digest_of_first_request != digest:
            raise ProblemError(
                409, "this idempotency key belongs to another task", "use a new key for a new task"
            )
        return first

    def _remember_user(self, task_id: str, user: str | None) -> None:
        """Remember the user of a recorded task beyond the task's end."""
        self._users_by_task_id.pop(task_id, None)  # move to the end: the oldest are dropped
        self._users_by_task_id[task_id] = user
        if len(self._users_by_task_id) > _MAX_USERS:
            del self._users_by_task_id[next(iter(self._users_by_task_id))]

    def sees_task_of_this_process(self, caller: Caller, task_id: str) -> bool:
        """Return True if a task was submitted to this process and a caller may see the task."""
        users = self._users_by_task_id
        return task_id in users and caller.sees(users[task_id])

    def _forget_running(self, task_id: str, running_task: _RunningTask) -> None:
        """Stop counting a run of a task among its user's open tasks. Idempotent."""
        # A task that ended at its budget may have been resumed since, as a run of its own.
        if self._running_tasks.get(task_id) is running_task:
            del self._running_tasks[task_id]
        running_task.recorded.set()
        running_task.started.set()
        running_task.over.set()

    async def _is_over_or_waiting(self, task_id: str) -> bool:
        """Return True if a task has ended or waits for a person."""
        record, waiting = await self.task_and_pending_requests(task_id)
        state = state_of(record, waiting=waiting)
        return state.is_terminal or state is TaskState.WAITING

    async def wait(self, task_id: str, seconds: float) -> None:
        """Wait until a task ends or needs a person.

        Args:
            task_id: The id of the task, which may run in any process.
            seconds: The maximum time to wait.
        """
        # Subscribe before reading the state, so that an end between the two is not missed.
        events = self.journal.subscribe(task_id)
        deadline = time.monotonic() + seconds
        while not await self._is_over_or_waiting(task_id):
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._is_shutting_down:
                return
            # Check the state again after a short time: the task's process may die without an event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(remaining, LOOK_SECONDS)):
                    is_journal_open = await _receive_end_or_request(events)
                    if not is_journal_open:
                        return

    def end_waits(self) -> None:
        """Make waits for tasks end soon, because the server shuts down.

        A running wait ends after its next look at the task's state, a new wait at once.
        """
        self._is_shutting_down = True

    # -- looking up -----------------------------------------------------------------------

    async def pending_requests(self) -> Waiting:
        """Return the pending requests by task id.

        Concurrent callers share a read of the journal that begins after their calls. A read that
        began earlier may have a request that was decided in the meantime.
        """
        # _read_pending_requests() sets this to None when the read begins.
        if self._next_read_of_pending_requests is None:
            self._next_read_of_pending_requests = shared_task(self._read_pending_requests())
        return await asyncio.shield(self._next_read_of_pending_requests)

    async def _read_pending_requests(self) -> Waiting:
        """Read the pending requests from the journal, and return them by task id.

        Another read that is in progress ends first.
        """
        async with self._pending_requests_lock:
            # Until now, new callers of pending_requests() shared this read. The read begins now and
            # may miss later changes, so the next caller starts another read.
            self._next_read_of_pending_requests = None
            requests_by_task = dict[str, list[RequestRecord]]()
            for record in await self.journal.find_requests(waiting=True, limit=MAX_REQUESTS):
                requests_by_task.setdefault(record.task.task_id, []).append(record)
            return requests_by_task

    async def pending_requests_in(self, _journal: SharedJournal) -> Waiting:
        """Adapt :meth:`pending_requests` to the signature that searches expect."""
        return await self.pending_requests()

    async def find(
        self,
        *,
        state: TaskState | None = None,
        text: str | None = None,
        since: float | None = None,
        limit: int = 100,
        after: str | None = None,
        caller: Caller,
    ) -> tuple[list[Task], str | None]:
        """Return a page of the tasks that a caller may see, newest first.

        Returns:
            The tasks, and the cursor of the next page; None if there are no more tasks.
        """
        records = await find_tasks(
            self.journal,
            limit + 1,
            state=state,
            text=text or None,
            since=since,
            users=caller.visible_users,
            after=None if after is None else _decode_cursor(after),
            waiting=self.pending_requests_in,
        )
        pending_requests = await self.pending_requests()
        page = records[:limit]
        views = [self.view_of(record, pending_requests, caller) for record in page]
        has_more = len(records) > limit
        next_cursor = _encode_cursor(page[-1]) if has_more else None
        return views, next_cursor

    async def newest(self, words: str, caller: Caller, since: float | None = None) -> str | None:
        """Return the id of the caller's newest task with a given text; None if none is found.

        Only the newest tasks that contain the text are searched, up to a number of pages.

        Args:
            words: The whole text of the task.
            caller: The authenticated caller.
            since: The Unix time after which the task started.
        """
        users = None if caller.user is None else frozenset({caller.user})
        text = words[:_SEARCH_CHARACTERS]
        place: ListPlace | None = None
        # The journal finds all tasks that contain the text. The first page may have only tasks with
        # a longer text.
        for _ in range(_MAX_CANDIDATE_PAGES):
            records = await find_tasks(
                self.journal, _CANDIDATES_PER_PAGE, text=text, since=since, users=users, after=place
            )
            for record in records:
                if record.task == words:
                    return record.task_id
            is_last_page = len(records) < _CANDIDATES_PER_PAGE
            if is_last_page:
                return None
            place = records[-1].place
        return None

    async def record(self, id_or_prefix: str, caller: Caller) -> TaskRecord:
        """Return the record of a task that the caller may see.

        Args:
            id_or_prefix: The id of the task, or a prefix of only one id.
            caller: The authenticated caller.

        Raises:
            UnknownTaskError: If the caller may see no such task.
        """
        return await self.journal.task(
            await self.journal.resolve(id_or_prefix, caller.visible_users)
        )

    async def _by_full_id(self, task_id: str, caller: Caller) -> TaskRecord:
        """Return the record of a task by its full id. Changes of a task require the full id.

        Raises:
            UnknownTaskError: If the caller may see no such task.
            ProblemError: If the id is only a prefix.
        """
        record = await self.record(task_id, caller)
        if record.task_id != task_id:
            raise ProblemError(404, f"no task {task_id[:60]!r} is known", "give the whole task_id")
        return record

    async def prompts(
        self, id_or_prefix: str, caller: Caller, limit: int, offset: int
    ) -> PromptList:
        """Return a page of a task's model calls, with prompts and answers.

        Raises:
            UnknownTaskError: If the caller may see no such task.
        """
        record = await self.record(id_or_prefix, caller)
        events = await self.journal.read(record.task_id)
        all_prompts = await asyncio.to_thread(views.prompts_of, events)
        prompts = [Prompt(**asdict(item)) for item in all_prompts[offset : offset + limit]]
        return PromptList(prompts=prompts, more=len(all_prompts) > offset + limit)

    async def task_and_pending_requests(self, task_id: str) -> tuple[TaskRecord, Waiting]:
        """Return a task's record and the pending requests, as :meth:`view_of` takes them."""
        return await self.journal.task(task_id), await self.pending_requests()

    def foreign_project(self, record: TaskRecord) -> str | None:
        """Return the name of a task's project; None if this server serves the project."""
        # The server may have been started in a folder below the project's root.
        own_folders = {str(Path.cwd()), *self._agent.config.former_folders}
        if self._agent.project is not None:
            own_folders.add(str(self._agent.project.root))
        return None if record.folder in own_folders else record.project

    def view_of(self, record: TaskRecord, waiting: Waiting, caller: Caller) -> Task:
        """Convert a task's record to the API's model of a list entry, for a caller."""
        requests = waiting.get(record.task_id, ())
        state = state_of(record, waiting=waiting)
        return Task.of(
            record,
            state=state,
            asked_by=name_of_user(record.user),
            project=self.foreign_project(record),
            waits_for_you=any(may_decide(request, caller) for request in requests),
            is_terminal=state.is_terminal,
        )

    async def view(self, id_or_prefix: str, caller: Caller) -> Task:
        """Return a task as the list of the caller's tasks shows it.

        Args:
            id_or_prefix: The id of the task, or a prefix.
            caller: The authenticated caller.
        """
        return self.view_of(
            await self.record(id_or_prefix, caller), await self.pending_requests(), caller
        )

    async def detail(self, id_or_prefix: str, caller: Caller) -> TaskDetail:
        """Return a task with its result, its decisions and its files."""
        record = await self.record(id_or_prefix, caller)
        events = await self.journal.read(record.task_id)
        pending_requests = await self.pending_requests()
        view = self.view_of(record, pending_requests, caller)
        requests = pending_requests.get(record.task_id, ())
        request_ids = [request.requested.request_id for request in requests]
        return await asyncio.to_thread(_detail, view, events, request_ids, caller)

    async def output_files(self, id_or_prefix: str, caller: Caller) -> dict[str, str]:
        """Return a task's output files, as a mapping from name to path.

        Args:
            id_or_prefix: The id of the task, or a prefix.
            caller: The authenticated caller.
        """
        record = await self.record(id_or_prefix, caller)
        return snapshot(await self.journal.read(record.task_id)).files

    # -- stopping and resuming ------------------------------------------------------------

    async def cancel(self, task_id: str, caller: Caller, via: str) -> tuple[str, bool]:
        """Stop a task in any process.

        Returns:
            The id of the task, and whether the task was stopped. False if the task had already
            ended.

        Raises:
            DelfError: If the owning process does not stop the task in time.
        """
        if (await self._by_full_id(task_id, caller)).state.is_terminal:
            return task_id, False
        if (running_task := self._running_tasks.get(task_id)) is not None:
            # Only a task whose start is in the journal can be stopped.
            await running_task.recorded.wait()
        # acancel() returns before a task of this process has ended, so stop() waits for the end.
        await self._agent.acancel(task_id, by=caller.name, via=via)
        await self.journal.stop(task_id, caller.name, via)
        return task_id, (await self.journal.task(task_id)).state is TaskState.STOPPED

    async def remove(self, task_id: str, caller: Caller) -> None:
        """Remove a task that is not running, with its data and its files in temporary folders.

        An output folder that the user configured keeps its files.

        Raises:
            ProblemError: If the task is running or queued.
        """
        record = await self._by_full_id(task_id, caller)
        removed = await remove(self.journal, [task_id])
        if not removed.tasks:
            raise ProblemError(409, f"the task is not over: it is {record.state}", "cancel it")
        await self._uploads.forget(removed.inputs)

    async def resume(self, task_id: str, caller: Caller, timeout: float | None = None) -> str:
        """Resume a task that was interrupted, or that ended at its timeout or budget.

        Raises:
            ProblemError: If this server cannot resume the task, for example because the task is
                running or has ended for another reason; or if a budget of the caller is exhausted.
        """
        record = await self._by_full_id(task_id, caller)
        events = await self.journal.read(record.task_id)
        end = end_event(events)
        at_limit = end is not None and end.at_limit
        if record.state is not TaskState.INTERRUPTED and not at_limit:
            reason = "it is over" if record.state.is_terminal else f"it is {record.state}"
            raise ProblemError(409, f"the task cannot be resumed: {reason}")
        if (project := self.foreign_project(record)) is not None:
            raise ProblemError(
                409,
                f"the task belongs to the project {project}, whose tools this server does not have",
                "a server of that project can resume it; if the project was moved here, name its "
                "old folder in former_folders under [agent]",
            )
        if _has_own_options(events):
            raise ProblemError(
                409,
                "the task was started with options of its own, such as what it may change, which "
                "this server does not have",
                "resume it where it was started",
            )
        try:
            await self._check_user(record.user)
        except ConfigurationError as error:
            raise ProblemError(409, error.message) from None
        # The costs are charged to the task's user. Even so, a caller with an exhausted budget must
        # not cause costs for another person.
        await self.budgets.raise_if_exhausted(caller)
        await self._resume(record.task_id, record.user, timeout, continue_past_limit=True)
        return record.task_id

    async def fork(
        self, task_id: str, wanted: ForkRequest, caller: Caller, client: str | None = None
    ) -> str:
        """Start a new task from an event of another task, and return the new task's id.

        Raises:
            ProblemError: If there is no such event, if the model is not available to the caller, or
                if a budget of the caller is used up.
        """
        self._check_model(wanted.llm)
        record = await self._by_full_id(task_id, caller)
        self._raise_if_too_many_are_open(caller)
        await self.budgets.raise_if_exhausted(caller)
        try:
            new_task_id = await self._agent.afork(
                record.task_id,
                wanted.at,
                script=wanted.script,
                llm=wanted.llm,
                user=caller.user,
                setup=_setup(caller, client),
            )
        except UnknownTaskError as error:  # the task exists, but has no event ``wanted.at``
            raise ProblemError(422, error.message, param="at") from None
        await self._resume(new_task_id, caller.user)
        return new_task_id

    async def _resume(
        self,
        task_id: str,
        user: str | None,
        timeout: float | None = None,
        *,
        continue_past_limit: bool = False,
    ) -> None:
        """Continue a task in this process, without waiting for the end of the task.

        Return after the first new event, but at the latest after a few seconds.

        Args:
            task_id: The id of the task.
            user: The user of the task.
            timeout: The task's timeout in seconds; None for the timeout that a queued task
                was submitted with, or else the configured timeout.
            continue_past_limit: Whether to continue also a task that ended at its timeout or
                budget.

        Raises:
            DelfError: If the task fails before its first new event. Later errors are only logged.
        """
        if task_id in self._running_tasks:
            return
        running_task = self._running_tasks[task_id] = _RunningTask(user)
        try:
            first = (await self.journal.read(task_id))[0]
            ledger = await self._ledger_of_accepted_task(user)
        except BaseException:
            self._forget_running(task_id, running_task)
            raise
        if timeout is None and isinstance(first, TaskQueued):
            timeout = first.timeout
        resuming = self._agent.aresume(
            task_id,
            timeout,
            continue_past_limit=continue_past_limit,
            listeners=[
                partial(self._handle_end, task_id, running_task),
                lambda _event: running_task.started.set(),  # at the first event
            ],
            ledger=ledger,
            before_start=partial(self._check_user, user),
        )
        running_task.work = asyncio.create_task(
            self._resume_until_end(task_id, running_task, resuming)
        )
        running_task.recorded.set()  # the task was in the journal before
        self._remember_user(task_id, user)
        await _wait_for_first_event(running_task)

    async def _resume_until_end(
        self, task_id: str, running_task: _RunningTask, resuming: Awaitable[object]
    ) -> None:
        """Continue a task until its end, and log an error that prevents this."""
        try:
            await resuming
        except DelfError as error:
            _log.warning("task %s is not continued: %s", task_id, error.message)
            if not running_task.started.is_set():
                running_task.start_error = error
        finally:
            # _handle_end() does this if the task ends. The work may also stop before that.
            self._forget_running(task_id, running_task)

    async def _ledger_of_accepted_task(self, user: str | None) -> SharedLedger | None:
        """Return the ledger that charges a task to its user's budgets; None if there are none.

        An exhausted budget does not refuse the task, because it was accepted before.
        """
        caller = None if user is None else self._keys.caller_of(user)
        if caller is None:
            return None
        return await self.budgets.ledger(caller, self._agent.ledger, checked=False)

    async def _keep_adopting(self) -> None:
        """Periodically resume tasks of dead servers."""
        outage = Outage(_log, "tasks of dead servers are not resumed", self.journal.place)
        while True:
            with outage.track(DelfError):
                async for record in self._interrupted_tasks():
                    # The tools of another project have the same names, but not the same data.
                    if self.foreign_project(record) is None:
                        await self._adopt(record.task_id)
            await asyncio.sleep(LOOK_SECONDS)

    async def _interrupted_tasks(self) -> AsyncIterator[TaskRecord]:
        """Yield the interrupted tasks of all projects, read from the journal in pages."""
        place: ListPlace | None = None
        while records := await self.journal.find(PAGE, state=TaskState.INTERRUPTED, after=place):
            for record in records:
                yield record
            place = records[-1].place

    async def _adopt(self, task_id: str) -> None:
        """Resume a task of a dead server, unless it was resumed too often or cannot be read."""
        if task_id in self._tasks_not_to_resume or task_id in self._running_tasks:
            return
        try:
            events = await self.journal.read(task_id)
        except UnknownTaskError:
            return  # removed since the list was read
        except UnreadableEventError as error:
            _log.warning("a task of a dead server is not resumed: %s", error.message)
            self._tasks_not_to_resume.add(task_id)
            return
        first_event = start_event(events)
        # A task of a command or program is not resumed here: only servers store this field.
        if (
            first_event is None
            or SERVER_FIELD not in first_event.setup
            or _is_resumed_too_often(events)
        ):
            self._tasks_not_to_resume.add(task_id)
            return
        try:
            # The start of the task also checks the user, but leaves a refused task interrupted. The
            # server would then try the task again every few seconds.
            await self._check_user(first_event.user)
        except ConfigurationError as error:
            await self._fail(task_id, error)
            return
        try:
            await self._resume(task_id, first_event.user)
        except DelfError:
            return  # another process was quicker, or the next look tries again

    async def _check_user(self, user: str | None) -> None:
        """Check that the user of a task may still run tasks.

        Called when the task starts, because a task may wait for long after its submission.

        Raises:
            ConfigurationError: If the user was removed, or lost the right to run tasks.
            JournalFailedError: If the people cannot be read from the journal.
        """
        if user is None:
            return
        try:
            people = await self.journal.people()
        except JournalUnavailableError as error:
            # JournalUnavailableError is a ConfigurationError, so callers would take the outage for
            # a user without rights.
            raise JournalFailedError(error.message, hint=error.hint) from error
        check_may_run(user, people)

    async def _fail(self, task_id: str, error: DelfError) -> None:
        """Record an interrupted task as failed. Does nothing if another process is quicker."""
        try:
            await self.journal.claim(task_id)
        except DelfError:
            return
        events = await self.journal.read(task_id)
        # Another process may have ended the task before this one got the claim.
        if isinstance(events[-1], TaskFinished):
            return
        end = make_end_event(events, error)
        await self.journal.append(end)
        self._end_notices.tell(end)

    async def _keep_forgetting(self, ages: Ages) -> None:
        """Periodically remove tasks beyond their retention time."""
        chat: Any = self._agent.chat
        while True:
            try:
                removed = await prune(self.journal, ages)
                await self._uploads.forget(removed.inputs)
                # A conversation is kept as long as the tasks that are kept longest.
                chats: list[Any] = [] if chat is None else await chat.aprune(max(ages.values()))
                if removed.tasks or chats:
                    _log.info(
                        "%d tasks, %d conversations forgotten", len(removed.tasks), len(chats)
                    )
            except DelfError as error:
                _log.warning("old tasks are not removed: %s", error.message)
            await asyncio.sleep(_FORGET_SECONDS)


async def _wait_for_first_event(running_task: _RunningTask) -> None:
    """Wait for the first new event of a resumed task, but at most a few seconds.

    Raises:
        DelfError: If the task ends with this error before its first new event.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FIRST_EVENT_SECONDS):
            await running_task.started.wait()
    if running_task.start_error is not None:
        raise running_task.start_error


def shared(agent: Agent) -> SharedJournal:
    """Return the journal of a started agent.

    Raises:
        ConfigurationError: If the journal cannot be shared with other processes.
    """
    journal: Any = agent.journal
    if isinstance(journal, SharedJournal):
        return journal
    raise ConfigurationError(
        "the agent's journal is not for several processes", hint='the setting journal = "sql"'
    )


def _task_id_of_key(idempotency_key: str, scope: str) -> str:
    hashed = hashlib.sha256(f"{scope}\n{idempotency_key}".encode("utf-8", "replace"))
    return f"task_{hashed.hexdigest()[:32]}"


def _find_missing(paths: Sequence[Path]) -> str | None:
    """Return the name of the first missing file; None if all files exist."""
    return next((path.name for path in paths if not path.is_file()), None)


def _check_output(schema: Mapping[str, Any]) -> None:
    try:
        Output(schema)
    except ConfigurationError as error:
        raise ProblemError(422, error.message, param="output") from None


def _digest(order: RunRequest) -> str:
    order_text = order.model_dump_json(exclude={"wait"})
    return hashlib.sha256(order_text.encode("utf-8", "replace")).hexdigest()[:32]


def _encode_cursor(record: TaskRecord) -> str:
    """Encode a task's position in the task list as a cursor."""
    return f"{record.started_at:.9f}~{record.task_id}"


def _decode_cursor(cursor: str) -> ListPlace:
    """Decode a cursor to a position in the task list."""
    started, _, task_id = cursor.partition("~")
    return float(started), task_id


def _setup(
    caller: Caller,
    client: str | None,
    other_authors: Sequence[str] = (),
    *,
    request_digest: str | None = None,
) -> dict[str, Any]:
    """Return the data about a request that the new task's record keeps.

    Args:
        caller: The authenticated caller.
        client: The caller's network address.
        other_authors: The names of other people who wrote parts of the task's text.
        request_digest: The digest of the request, for the comparison with repeated requests; None
            to store no digest.
    """
    data_of_server = {"user": caller.name}
    if request_digest is not None:
        data_of_server[_DIGEST_FIELD] = request_digest
    setup: dict[str, Any] = {SERVER_FIELD: data_of_server, ASKED_FROM: client}
    if other_authors:
        setup[OTHER_AUTHORS_KEY] = [*other_authors]
    return setup


def _submitted(
    name: str, conversation: str | None, caller: Caller, *, is_new: bool = True
) -> Submitted:
    conversation_name = None if conversation is None else shown_name(conversation, caller)
    return Submitted(name, conversation_name, is_new=is_new)


def stored_name(conversation: str | None, caller: Caller) -> str | None:
    """Return the name under which the journal stores a caller's conversation: ``USER|NAME``.

    Without a user, as on a server without keys, the stored name is the given name. Return None if
    no conversation is given.
    """
    if conversation is None:
        return None
    return conversation_of(caller.user, conversation)


def shown_name(conversation: str, caller: Caller) -> str:
    """Return a conversation's name without the prefix of its user."""
    return conversation.removeprefix(f"{caller.user}{USER_SEPARATOR}")


def is_kept_by_client(conversation: str) -> bool:
    """Return True if a stored conversation is a copy of messages that the client keeps."""
    name_without_user = conversation.rpartition(USER_SEPARATOR)[2]
    return name_without_user.startswith(CLIENT_CONVERSATION_PREFIX)


def _has_own_options(events: Sequence[Event]) -> bool:
    """Return True if a task has options of its own, which differ from those of the server's agent.

    A command or the test of a schedule may start such a task. Its options may be stricter, for
    example refuse all calls that change something. A task or fork that a server started has none.
    """
    start = start_event(events)
    if start is None or SERVER_FIELD in start.setup:
        return False
    return bool(start.setup.get("flags") or start.setup.get("overrides"))


def _is_resumed_too_often(events: Sequence[Event]) -> bool:
    times = [event.at for event in events if isinstance(event, TaskResumed)]
    if len(times) < _MAX_RESUMES:
        return False
    recent = times[-_MAX_RESUMES:]
    return recent[-1] - recent[0] < _RESUMES_SECONDS


def _decisions(events: Sequence[Event]) -> list[TaskDecision]:
    """Return the decisions and votes about a task's requests."""
    actions = {e.request_id: e.action for e in events if isinstance(e, ApprovalRequested)}
    decisions: list[TaskDecision] = []
    for event in events:
        if not isinstance(event, (ApprovalDecided, ApprovalVoted)):
            continue
        is_final = isinstance(event, ApprovalDecided)
        decision = TaskDecision.of(
            event,
            action=actions.get(event.request_id, ""),
            # A vote, the first of two approvals, is always an approval.
            decision=event.decision if is_final else "approved",
            source=event.source if is_final else "person",
            is_final=is_final,
        )
        decisions.append(decision)
    return decisions


def _detail(
    view: Task, events: Sequence[Event], request_ids: Sequence[str], caller: Caller
) -> TaskDetail:
    """Return a task with its result, its decisions and its files.

    Slow for long tasks, so call the function in a thread.

    Args:
        view: The task without details, as the list of tasks shows it.
        events: The events of the task.
        request_ids: The ids of its pending requests.
        caller: The authenticated caller.
    """
    state = snapshot(events)
    conversation_id: str | None = None
    asked_from: str | None = None
    start = start_event(events)
    if start is not None:
        asked_from = start.setup.get(ASKED_FROM)
        if start.conversation is not None:
            conversation_id = shown_name(start.conversation, caller)
    fields_of_end: dict[str, Any] = {}
    end = end_event(events)
    if end is not None:
        fields_of_end = {
            "code": end.code,
            "hint": end.hint,
            "stopped_by": end.by,
            # ``via`` is the channel and the address from which a person stopped the task.
            "stopped_from": end.via or None,
        }
    files: list[OutputFile] = []
    for name, recorded_path in state.files.items():
        path = Path(recorded_path)
        if path.is_file():
            files.append(OutputFile(name=name, size=path.stat().st_size))
    is_waiting = view.state is TaskState.WAITING
    return TaskDetail(
        **view.model_dump(),
        result=state.result,
        value=state.value,
        **fields_of_end,
        output_so_far=state.output_so_far,
        files=files,
        conversation_id=conversation_id,
        asked_from=asked_from,
        decisions=_decisions(events),
        tokens_used=state.tokens_used,
        approvals=list(request_ids) if is_waiting else [],
    )


async def _receive_end_or_request(events: AsyncIterator[Event]) -> bool:
    """Receive events until a task ends or asks a person; return False if the journal was closed."""
    async for event in events:
        if isinstance(event, (TaskFinished, ApprovalRequested)):
            return True
    return False
