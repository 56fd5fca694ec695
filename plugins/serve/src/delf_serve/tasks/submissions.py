"""New tasks: checked, submitted to the agent, and started once for an idempotency key."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from delf.errors import ConfigurationError, DelfError, UnknownTaskError
from delf.events import TaskQueued, TaskStarted
from delf.protocols.shared_journal import SharedJournal
from delf.types import Trust
from delf_engine.outputs import Output
from delf_serve.budgets import Budgets
from delf_serve.files import Uploads
from delf_serve.keys import Caller
from delf_serve.problems import ProblemError
from delf_serve.schemas import RunRequest
from delf_serve.settings import ServeSettings
from delf_serve.tasks.conversation_names import shown_name, stored_name
from delf_serve.tasks.request_data import digest_of_request, setup_of, stored_digest
from delf_serve.tasks.running import Run, RunningTasks, check_user

if TYPE_CHECKING:
    from delf import Agent


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
    """A task to submit. Most fields are the arguments of :meth:`Submissions.submit`.

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


class Submissions:
    """Submits new tasks to the agent.

    Args:
        agent: The agent that runs the tasks.
        journal: Returns the journal.
        settings: The models that callers may choose.
        uploads: The uploaded files, which tasks may use.
        budgets: The budgets of the people.
        running: The tasks that run in this process.
    """

    def __init__(
        self,
        agent: Agent,
        journal: Callable[[], SharedJournal],
        settings: ServeSettings,
        uploads: Uploads,
        budgets: Budgets,
        running: RunningTasks,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._settings = settings
        self._uploads = uploads
        self._budgets = budgets
        self._running = running

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
            trust: ``own`` if the user wrote the task's text, ``outside`` if anybody else did.
        """
        self.check_model(order.llm)
        if order.output is not None:
            _check_output(order.output)
        # No script uses the variables: the given strategy, such as a routine, has no script of the
        # model. So the caller has written the untrusted values into the task's text instead.
        if external_variables is not None and strategy is not None:
            trust = "outside"
        # A task without a key gets an empty digest, which equals no request's digest. So a request
        # with a key never takes this task for its own.
        digest = "" if idempotency_key is None else digest_of_request(order)
        submission = _Submission(
            order=order,
            caller=caller,
            conversation=self._conversation_name(order, caller),
            strategy=strategy,
            paths=paths,
            variables=external_variables,
            trust=trust,
            setup=setup_of(caller, client, other_authors, request_digest=digest),
        )
        if idempotency_key is None:
            return await self._submit_new(f"task_{secrets.token_hex(8)}", submission)
        # Every server derives the same id, so that concurrent requests start one task.
        task_id = _task_id_of_key(idempotency_key, key_scope or caller.user or caller.name)
        return await self._submit_once(task_id, submission, digest)

    def check_model(self, name: str | None) -> None:
        """Check that the settings offer a model; None is the agent's own model.

        Raises:
            ProblemError: If the model cannot be chosen.
        """
        models = self._settings.models
        if name is not None and name not in models:
            choices = f"one of {', '.join(models)}" if models else "this server has one model alone"
            raise ProblemError(409, f"the model cannot be chosen: {choices}", param="llm")

    def _conversation_name(self, order: RunRequest, caller: Caller) -> str | None:
        """Return the stored name of a task's conversation, which is new if the request names none.

        Return None if the request names none, and the agent keeps no conversations.
        """
        name = stored_name(order.conversation_id, caller)
        if self._agent.chat is not None and name is None:
            return stored_name(f"web-{secrets.token_hex(6)}", caller)
        return name

    # -- a new task -----------------------------------------------------------------------

    async def _submit_new(self, task_id: str, submission: _Submission) -> Submitted:
        """Submit a task that no earlier request has submitted."""
        caller = submission.caller
        # Checked for new tasks only: a repeated request gets its task even if the agent no longer
        # keeps conversations.
        if submission.conversation is not None and self._agent.chat is None:
            raise ProblemError(409, "the agent keeps no conversations", param="conversation_id")
        # No await between these two: concurrent requests of a caller would all pass the check.
        self._running.raise_if_too_many_are_open(caller)
        run = self._running.add(task_id, caller.user)
        # If the client disconnects, this method is cancelled, and the task is still submitted.
        await asyncio.shield(self._submit_and_record(run, submission))
        return _submitted(task_id, submission.conversation, caller)

    async def _submit_and_record(self, run: Run, submission: _Submission) -> None:
        """Submit a task to the agent, and return once the journal has recorded it."""
        order = submission.order
        caller = submission.caller
        try:
            ledger = await self._budgets.ledger(caller, self._agent.ledger)
            handle = await self._agent.asubmit(
                order.task,
                order.timeout,
                task_id=run.task_id,
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
                listeners=[partial(self._running.listen, run)],
                # Checked by the agent when the task leaves the queue, which may be much later.
                before_start=partial(check_user, self._journal(), caller.user),
            )
        except BaseException:
            # Also wakes up equal requests, which wait in _find_submitted().
            self._running.discard(run)
            raise
        self._running.set_recorded(run, handle)

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

    # -- one task for an idempotency key --------------------------------------------------

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
            if earlier is not None:
                return earlier
            # If the other request fails to submit the task, the next look finds no task.
            is_being_submitted = await self._running.wait_until_recorded(task_id)
            if not is_being_submitted:
                return None

    async def _find_first_event(self, task_id: str, digest: str) -> TaskQueued | TaskStarted | None:
        """Return the first event of the task of an idempotency key; None if there is no task.

        Args:
            task_id: The id of the task, derived from the key.
            digest: The digest of the present request, which must equal the digest of the request
                that started the task.

        Raises:
            ProblemError: If the task was deleted, or belongs to a different request.
        """
        journal = self._journal()
        try:
            events = await journal.read(task_id)
        except UnknownTaskError:
            if await journal.was_removed(task_id):
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
        if stored_digest(first) != digest:
            raise ProblemError(
                409, "this idempotency key belongs to another task", "use a new key for a new task"
            )
        return first


def _check_output(schema: Mapping[str, Any]) -> None:
    try:
        Output(schema)
    except ConfigurationError as error:
        raise ProblemError(422, error.message, param="output") from None


def _task_id_of_key(idempotency_key: str, scope: str) -> str:
    hashed = hashlib.sha256(f"{scope}\n{idempotency_key}".encode("utf-8", "replace"))
    return f"task_{hashed.hexdigest()[:32]}"


def _submitted(
    name: str, conversation: str | None, caller: Caller, *, is_new: bool = True
) -> Submitted:
    conversation_name = None if conversation is None else shown_name(conversation, caller)
    return Submitted(name, conversation_name, is_new=is_new)
