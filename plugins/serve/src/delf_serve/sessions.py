"""Login sessions of the page, and limits for long-lived streams and waits."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from delf.errors import DelfError
from delf.network.outages import Outage
from delf.protocols.people import digest_of
from delf.protocols.sessions import SessionRecord
from delf.protocols.shared_journal import SharedJournal
from delf_serve.keys import Caller, Keys
from delf_serve.problems import ProblemError
from delf_serve.settings import ServeSettings

_log = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 2.0
_MAX_BROWSER_CHARACTERS: Final = 200


@dataclass(eq=False)
class OpenRequest:
    """A long-lived request: an event stream, or a wait for a task.

    Args:
        caller: The authenticated caller.
        session: The digest of the session; None for a request without a session.
        end: A function that ends the request.
        needs_same_rights: Whether the request ends when the caller's rights change.
        is_session_over: Whether the session has ended since the request began.
    """

    caller: Caller
    session: str | None
    end: Callable[[], object] = lambda: None
    needs_same_rights: bool = True
    is_session_over: bool = False


class Sessions:
    """Login sessions stored in the journal, and the long-lived requests that depend on them.

    Args:
        keys: The people and keys.
        journal: Returns the journal, which stores the sessions.
        settings: The session duration and the limits of long-lived requests.
    """

    def __init__(
        self, keys: Keys, journal: Callable[[], SharedJournal], settings: ServeSettings
    ) -> None:
        self._keys = keys
        self._journal = journal
        self._settings = settings
        self._open_requests: set[OpenRequest] = set()

    # -- logging in and out ---------------------------------------------------------------

    async def begin(self, caller: Caller, way: str, client: str, browser: str) -> str:
        """Start a session, and return the value of its cookie.

        Args:
            caller: The authenticated caller.
            way: The login method.
            client: The client's address.
            browser: The ``User-Agent`` header.
        """
        now = time.time()
        cookie = secrets.token_urlsafe(32)
        record = SessionRecord(
            digest=digest_of(cookie),  # not the cookie: readers of the journal could log in with it
            name=caller.name,
            began=now,
            until=now + self._settings.session_hours * 3600,
            user=caller.user or "",
            key=caller.digest.hex(),
            way=way,
            client=client,
            browser=browser[:_MAX_BROWSER_CHARACTERS],
        )
        await self._journal().begin_login(record)
        return cookie

    async def caller_of(self, cookie: str) -> Caller | None:
        """Return the person who is logged in with a session cookie.

        Return None if the session is unknown or has ended, or the person is revoked.
        """
        records = await self._journal().logins([digest_of(cookie)])
        return self._keys.caller_of_session(records[0]) if records else None

    async def of(self, caller: Caller) -> list[SessionRecord]:
        """Return the login sessions of the caller, oldest first."""
        user = caller.user
        if not user:
            return []
        records = await self._journal().logins()
        return [session for session in records if session.user == user]

    async def end_of(self, caller: Caller, session_id: str) -> None:
        """End one of a person's sessions.

        Raises:
            ProblemError: If the person has no such session.
        """
        for session in await self.of(caller):
            if session.id == session_id:
                await self.end_digest(session.digest)
                return
        raise ProblemError(404, "no such session is known", "GET /sessions")

    async def end(self, cookie: str) -> None:
        """End a session by its cookie, in all processes."""
        await self.end_digest(digest_of(cookie))

    async def end_digest(self, digest: str) -> None:
        """End a session by the digest of its cookie, in all processes.

        Open event streams of the session end, too.
        """
        await self._journal().end_login(digest)
        self._end_invalid({digest})

    # -- what is held for long ------------------------------------------------------------

    @property
    def open_count(self) -> int:
        """The number of open event streams and waits."""
        return len(self._open_requests)

    @contextmanager
    def count_open_request(self, caller: Caller, cookie: str | None) -> Generator[OpenRequest]:
        """Count a long-lived request while the block runs.

        Raises:
            ProblemError: If the server or the caller has too many such requests.
        """
        settings = self._settings
        if len(self._open_requests) >= settings.streams:
            raise ProblemError(
                503, "too many streams and waits are open", headers={"retry-after": "10"}
            )
        count_of_caller = sum(request.caller.user == caller.user for request in self._open_requests)
        if count_of_caller >= settings.user_streams:
            raise ProblemError(
                429,
                f"{settings.user_streams:,} of your streams and waits are open",
                headers={"retry-after": "10"},
            )
        open_request = OpenRequest(caller, None if cookie is None else digest_of(cookie))
        self._open_requests.add(open_request)
        try:
            yield open_request
        finally:
            self._open_requests.discard(open_request)

    async def end_invalid_streams(self) -> None:
        """Periodically end event streams whose API key or session is no longer valid."""
        outage = Outage(_log, "sessions cannot be looked up", self._journal().place)
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            # _end_invalid() looks up the callers of the streams in the reloaded keys.
            await self._keys.reload(self._journal())
            open_sessions = {
                open_request.session
                for open_request in self._open_requests
                if open_request.session is not None
            }
            try:
                valid_sessions = {
                    record.digest for record in await self._journal().logins(open_sessions)
                }
            except DelfError as error:
                outage.record_failure(error)
                continue
            outage.record_success()
            self._end_invalid(open_sessions - valid_sessions)

    def _end_invalid(self, ended_sessions: set[str]) -> None:
        """End the requests whose session or key has ended, or whose caller's rights have changed.

        A change of rights ends only the requests that need the same rights.

        Args:
            ended_sessions: The digests of the sessions that have ended.
        """
        for request in list(self._open_requests):
            if request.session in ended_sessions:
                request.is_session_over = True
            current = self._keys.current(request.caller)
            has_other_rights = request.needs_same_rights and current != request.caller
            if request.is_session_over or current is None or has_other_rights:
                request.end()

    def end_all(self) -> None:
        """End all event streams and waits. Clients then reconnect to another process."""
        for request in list(self._open_requests):
            request.end()


def csrf_of(cookie: str) -> str:
    """Return the CSRF token of a session, which other websites cannot know."""
    code = hmac.digest(cookie.encode("utf-8", "replace"), b"delf csrf", "sha256")
    return base64.urlsafe_b64encode(code).decode().rstrip("=")
