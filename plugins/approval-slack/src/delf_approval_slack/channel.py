"""``SlackChannel``: asks in a Slack channel, and waits for a person's buttons."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from delf.errors import DelfError
from delf.protocols.approval import (
    NO_REASON,
    ApprovalRequest,
    Approved,
    DecidedBy,
    Decider,
    Decision,
    Edited,
    Rejected,
)
from delf.terminal import visible
from delf_approval_slack.blocks import (
    APPROVE,
    EDIT,
    REASON,
    REJECT,
    edit_view,
    edited,
    escaped,
    is_editable,
    long_values,
    question_of,
    reject_view,
    story_of,
    title_of,
    told_with,
)
from delf_approval_slack.settings import SlackSettings
from delf_approval_slack.ways import Way, way_of

_log = logging.getLogger(__name__)
_INSTANCE: Final = "approval_slack"
_GROUP_SECONDS: Final = 60.0
"""Seconds for which the members of a user group are known."""
_MOST_THREADS: Final = 10_000
_MOST_RETRIES: Final = 3
_GONE: Final = "This question does not wait here any more."


class SlackUnavailableError(DelfError):
    """Slack could not be reached, or refused what the app wants."""

    code = "ERR-SLACK-001"


@dataclass(eq=False)
class _Waiting:
    """A request that waits."""

    request: ApprovalRequest
    answer: asyncio.Future[DecidedBy]


class SlackChannel:
    """Implements :class:`delf.protocols.approval.ApprovalChannel`.

    A task has a thread, which begins with its words; its questions are answers in it that the
    channel sees, too. A message says how its question was decided once it is.

    Args:
        options: Fields of :class:`delf_approval_slack.settings.SlackSettings`; what is not given is
            read from ``DELF_APPROVAL_SLACK_…``.

    Raises:
        ConnectionConfigurationError: For a setting that does not fit.
    """

    def __init__(self, **options: Any) -> None:
        self._settings = SlackSettings.for_instance(_INSTANCE, options)
        self._waiting: dict[str, _Waiting] = {}
        self._threads: dict[str, str] = {}
        self._members: tuple[float, Mapping[str, frozenset[str]]] | None = None
        self._client: Any = None
        """Slack's client, whose methods have types that say nothing."""
        self._way: Way | None = None
        self._opening = asyncio.Lock()
        self._posting = asyncio.Lock()
        self._working: set[asyncio.Task[None]] = set()

    # -- the channel ------------------------------------------------------------------------

    async def decide(self, request: ApprovalRequest) -> DecidedBy:
        """Ask, and wait for somebody who may decide.

        Raises:
            SlackUnavailableError: When nobody could be asked.
        """
        client = await self._open()
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        self._waiting[request.request_id] = waiting
        how = "Decided elsewhere, or nobody waits for it any more."
        posting = asyncio.create_task(self._post(client, request))
        try:
            await asyncio.shield(posting)
            decided = await waiting.answer
            how = f"{_in_words(decided.decision)} by {decided.who.name}"
            return decided
        finally:
            self._waiting.pop(request.request_id, None)
            self._soon(self._close(client, request, posting, how))

    async def aclose(self) -> None:
        """Say what is left to say, and listen no more."""
        if self._working:
            await asyncio.wait(self._working)
        way, self._way, self._client = self._way, None, None
        if way is not None:
            await way.aclose()

    async def _open(self) -> Any:
        async with self._opening:
            if self._client is None:
                retry = AsyncRateLimitErrorRetryHandler(max_retry_count=_MOST_RETRIES)
                client = AsyncWebClient(
                    self._settings.bot_token.get_secret_value(),
                    base_url=self._settings.api_url,
                    retry_handlers=[retry],
                )
                way = way_of(self._settings, client, self.take)
                with _told("listen to Slack"):
                    await way.open()
                self._client, self._way = client, way
            return self._client

    # -- messages -----------------------------------------------------------------------------

    async def _post(self, client: Any, request: ApprovalRequest) -> str:
        """Post a question, and give the name of its message."""
        channel = self._settings.channel
        with _told("ask in Slack"):
            thread = await self._thread(client, request)
            posted = await client.chat_postMessage(
                channel=channel,
                thread_ts=thread,
                reply_broadcast=True,
                text=escaped(title_of(request)),
                blocks=question_of(request, is_editable=is_editable(request)),
                unfurl_links=False,
                unfurl_media=False,
            )
        if files := long_values(request):
            self._soon(self._upload(client, thread, files))
        return str(posted["ts"])

    async def _thread(self, client: Any, request: ApprovalRequest) -> str:
        """The thread of a task, begun with its words."""
        async with self._posting:
            known = self._threads.get(request.task_id)
            if known is not None:
                return known
            begun = await client.chat_postMessage(
                channel=self._settings.channel,
                text=escaped(f"delf works on: {request.task[:200]}"),
                blocks=story_of(request, self._settings.page_url),
                unfurl_links=False,
                unfurl_media=False,
            )
            if len(self._threads) >= _MOST_THREADS:
                self._threads.pop(next(iter(self._threads)))
            self._threads[request.task_id] = str(begun["ts"])
            return self._threads[request.task_id]

    async def _upload(self, client: Any, thread: str, files: list[tuple[str, str]]) -> None:
        uploads = [{"filename": name, "title": name, "content": text} for name, text in files]
        with _told("send long values to Slack"):
            await client.files_upload_v2(
                channel=self._settings.channel, thread_ts=thread, file_uploads=uploads
            )

    async def _close(
        self, client: Any, request: ApprovalRequest, posting: asyncio.Task[str], how: str
    ) -> None:
        """Say at a question how it was decided, also where it was before it was posted."""
        await asyncio.wait({posting})
        if posting.cancelled() or posting.exception() is not None:
            return  # whoever asked was told
        with _told("say in Slack how it was decided"):
            await client.chat_update(
                channel=self._settings.channel,
                ts=posting.result(),
                text=escaped(f"{title_of(request)}: {how}"),
                blocks=told_with(request, how),
            )

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what no decision waits for; a failure of it is a warning."""

        async def done() -> None:
            try:
                await work
            except SlackUnavailableError as error:
                _log.warning("%s", error.message)

        task = asyncio.create_task(done())
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    # -- people ---------------------------------------------------------------------------------

    async def take(self, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take what a person did, as Slack tells it; what is to be said of a form."""
        client = self._client
        if client is None:
            return None
        user = _fields(payload.get("user"))
        match payload.get("type"):
            case "block_actions":
                for action in payload.get("actions") or ():
                    await self._pressed(client, payload, user, _fields(action))
            case "view_submission":
                return await self._sent(client, _fields(payload.get("view")), user)
            case _:
                pass
        return None

    async def _pressed(
        self,
        client: Any,
        payload: Mapping[str, Any],
        user: Mapping[str, Any],
        action: Mapping[str, Any],
    ) -> None:
        kind, waiting = action.get("action_id"), self._waiting.get(str(action.get("value")))
        if kind not in (APPROVE, REJECT, EDIT):
            return
        try:
            problem = await self._problem(client, waiting, user)
            if problem is not None or waiting is None:
                with _told("answer a person in Slack"):
                    await client.chat_postEphemeral(
                        channel=self._settings.channel,
                        user=str(user.get("id")),
                        text=problem or _GONE,
                    )
            elif kind == APPROVE:
                await self._settle(client, waiting, Approved(), user)
            else:
                view = reject_view if kind == REJECT else edit_view
                with _told("open a form in Slack"):
                    await client.views_open(
                        trigger_id=str(payload.get("trigger_id")), view=view(waiting.request)
                    )
        except SlackUnavailableError as error:
            _log.warning("%s", error.message)

    async def _sent(
        self, client: Any, view: Mapping[str, Any], user: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Take a form; what is wrong with a field is said at the field."""
        waiting = self._waiting.get(str(view.get("private_metadata")))
        blocks = _fields(_fields(view.get("state")).get("values"))
        fields: dict[str, str | None] = {
            name: _fields(_fields(given).get("value")).get("value")
            for name, given in blocks.items()
        }
        first = next(iter(fields), REASON)
        try:
            problem = await self._problem(client, waiting, user)
        except SlackUnavailableError as error:
            problem = error.message
        if problem is not None or waiting is None:
            return _wrong(first, problem or _GONE)
        if view.get("callback_id") == REJECT:
            reason = (fields.get(REASON) or "").strip()
            await self._settle(client, waiting, Rejected(reason=reason or NO_REASON), user)
            return None
        request = waiting.request
        try:
            arguments = edited(request, fields)
        except ValueError as error:
            return _wrong(str(error), "this is not JSON")
        try:
            fitting = arguments if request.fit is None else request.fit(arguments)
        except DelfError as error:
            named = next((name for name in fields if name in error.message), first)
            return _wrong(named, error.message)
        await self._settle(client, waiting, Edited(arguments=fitting), user)
        return None

    async def _problem(
        self, client: Any, waiting: _Waiting | None, user: Mapping[str, Any]
    ) -> str | None:
        """The reason that a person cannot decide; None for one who can."""
        if waiting is None or waiting.answer.done():
            return _GONE
        person = str(user.get("id") or "")
        if not await self._may(client, person):
            return "You may not decide this: you are none of the approvers that delf was told."
        if waiting.request.rule and person not in self._settings.names:
            return "A rule of the team holds, and delf does not know you: `names` says who you are."
        return None

    async def _may(self, client: Any, user: str) -> bool:
        approvers = self._settings.approvers
        if user and ("*" in approvers or user in approvers):
            return True
        return not (await self._groups_of(client, user)).isdisjoint(approvers)

    async def _groups_of(self, client: Any, user: str) -> frozenset[str]:
        """The user groups of a person, of those that the settings name."""
        named = (*self._settings.approvers, *self._settings.names)
        groups = dict.fromkeys(group for group in named if group.startswith("S"))
        if self._members is None or self._members[0] < time.monotonic():
            members: dict[str, frozenset[str]] = {}
            for group in groups:
                with _told(f"look up the user group {group}"):
                    found = await client.usergroups_users_list(usergroup=group)
                members[group] = frozenset(map(str, found.get("users") or ()))
            self._members = time.monotonic() + _GROUP_SECONDS, members
        return frozenset(group for group, users in self._members[1].items() if user in users)

    async def _settle(
        self, client: Any, waiting: _Waiting, decision: Decision, user: Mapping[str, Any]
    ) -> None:
        """Take a decision; the first one counts.

        Nobody has a name of the team's by what they call themselves in Slack.
        """
        names, person = self._settings.names, str(user.get("id"))
        called = visible(str(user.get("username") or user.get("name") or "somebody"))
        name = names.get(person) or f"{called.replace(':', '')} ({person})"
        groups = await self._groups_of(client, person)
        who = Decider(
            name=name,
            key=f"{name}:{person}",
            teams=tuple(sorted(names[group] for group in groups if group in names)),
            via="slack",
        )
        if not waiting.answer.done():
            waiting.answer.set_result(DecidedBy(decision=decision, who=who))


def _fields(value: Any) -> Mapping[str, Any]:
    """The fields of an object of Slack's; none of what is not an object."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _wrong(field: str, why: str) -> dict[str, Any]:
    return {"response_action": "errors", "errors": {field: why[:150]}}


def _in_words(decision: Decision) -> str:
    match decision:
        case Approved():
            return "Approved"
        case Edited():
            return "Approved with other arguments"
        case Rejected(reason=reason):
            return f"Rejected ({reason})"
        case _:
            return "Decided"


@contextmanager
def _told(what: str) -> Generator[None]:
    """Tell a failure of Slack's in words of one's own: its texts may hold what was sent."""
    try:
        yield
    except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as error:
        response: Any = getattr(error, "response", None)
        data = getattr(response, "data", None)
        code = cast("dict[str, Any]", data).get("error") if isinstance(data, dict) else None
        raise SlackUnavailableError(
            f"delf could not {what}: {code or type(error).__name__}",
            hint="look at token, scopes and channel of the app, and whether it is in the channel",
        ) from error
