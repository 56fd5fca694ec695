"""The channel ``web``: notifies people of requests, which they decide on the page."""

from __future__ import annotations

import asyncio
import json
import logging
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from email.message import EmailMessage
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from delf.errors import ConfigurationError, DelfError
from delf.events import TaskFinished
from delf.network.proxies import proxy_for
from delf.protocols.approval import ApprovalRequest, Approved, Decider, Decision
from delf.protocols.facts import Fact, facts, plain_lines
from delf.protocols.journal import Journal, RequestRecord
from delf.protocols.people import NoticeChoice, Person, sees
from delf.protocols.shared_journal import SharedJournal
from delf.terminal import visible
from delf_engine.approvals.ballot import why_refused
from delf_serve.clients import is_loopback
from delf_serve.settings import ServeSettings, settings_of
from delf_serve.signatures import signature

_log = logging.getLogger(__name__)

_SECONDS: Final = 10.0
PAUSES: Final = (1.0, 5.0, 25.0)
"""The pauses in seconds between attempts to send a notice."""
_NOTE: Final = "notice"
"""The kind of journal note that records a sent notice."""
_LONGEST: Final = 500
_MOST_OF_A_FACT: Final = 20_000
"""The maximum number of characters of a fact in a notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notification for people.

    Args:
        name: The message id, the same for each attempt.
        content: The body for the webhook.
        subject: The mail's subject.
        text: The text of the mail.
    """

    name: str
    content: Mapping[str, Any]
    subject: str
    text: str


def notice_of(settings: ServeSettings, request: ApprovalRequest) -> Notice:
    """Make the notice of a pending request."""
    message, url = visible(request.message[:_LONGEST]), link(settings, request)
    found = [_cut(fact) for fact in facts(request)]
    content = {
        "event": "approval_requested",
        "request_id": request.request_id,
        "task_id": request.task_id,
        "task": visible(request.task[:_LONGEST]),
        "action": visible(request.action),
        "effect": request.effect,
        "asked_by": request.asked_by,
        "message": message,
        "facts": [fact.data() for fact in found],
        "url": url,
    }
    lines = "\n".join(plain_lines(found))
    text = f"{lines}\n\nDecide on the page:\n{url}\n"
    about = request.message if request.is_question else request.action
    subject = f"delf waits for you: {_one_line(about)}"
    return Notice(name=request.request_id, content=content, subject=subject, text=text)


def _cut(fact: Fact) -> Fact:
    """Truncate a fact; the page has the whole text."""
    left = len(fact.text) - _MOST_OF_A_FACT
    if left <= 0:
        return fact
    return replace(fact, text=f"{fact.text[:_MOST_OF_A_FACT]}… {left:,} more characters")


def notice_of_end(settings: ServeSettings, task: str, end: TaskFinished) -> Notice:
    """Make the notice of a finished task."""
    words, url = visible(task[:_LONGEST]), f"{settings.public_url}/#/{end.task_id}"
    shown = visible((end.text if end.status else end.error or "")[:_LONGEST])
    content = {
        "event": "task_finished",
        "task_id": end.task_id,
        "task": words,
        "state": end.state,
        "message": shown,
        "cost_usd": end.cost_usd,
        "url": url,
    }
    subject = f"delf: {end.state}: {_one_line(task)}"
    text = f"{shown}\n\nTask: {words}\n\n{url}\n"
    return Notice(name=f"{end.task_id}-end", content=content, subject=subject, text=text)


Way = Callable[[ServeSettings, Notice], None]
Sent = Callable[[], Awaitable[None]]
"""A callback awaited once a notice was delivered in at least one way."""


class Notices:
    """Sends notices by the configured ways.

    Args:
        settings: The server's settings.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._sending: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Drop unsent notices."""
        for work in self._sending:
            work.cancel()
        if self._sending:
            await asyncio.wait(self._sending)

    def tell(self, notice: Notice, to: Collection[str] = (), sent: Sent | None = None) -> None:
        """Send a notice in the background.

        Args:
            notice: The notice.
            to: Mail addresses of people who opted in, in addition to ``mail_to``.
            sent: Awaited once the notice was delivered.
        """
        settings = self._settings
        ways: list[Way] = []
        if settings.webhook_url is not None:
            ways.append(post)
        if settings.smtp_url is not None:
            # A mail for each: nobody learns the addresses of the others.
            groups = [settings.mail_to, *([one] for one in sorted({*to} - {*settings.mail_to}))]
            ways += [partial(mail, to=group) for group in groups if group]
        if ways:
            task = asyncio.create_task(self._send_all(ways, notice, sent))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_all(self, ways: Sequence[Way], notice: Notice, sent: Sent | None) -> None:
        arrived = await asyncio.gather(*(self._send(way, notice) for way in ways))
        if sent is not None and any(arrived):
            await sent()

    async def _send(self, way: Way, notice: Notice) -> bool:
        """Send a notice in a thread; return False with a warning if all attempts fail."""
        for pause in (*PAUSES, None):
            try:
                await asyncio.to_thread(way, self._settings, notice)
            except (OSError, ValueError, smtplib.SMTPException, ConfigurationError) as error:
                if pause is None:
                    name, what = notice.name, _in_words(error)
                    by = "post" if way is post else "mail"
                    _log.warning("no notice by %s that %s waits: %s", by, name, what)
                    return False
                await asyncio.sleep(pause)
            else:
                return True
        return False


class WebChannel:
    """Announces requests and questions; decisions come through the page and the journal.

    A request is announced once, even if its task is resumed, because the journal records sent
    notices.

    Args:
        options: Fields of :class:`delf_serve.settings.ServeSettings`.
    """

    def __init__(self, **options: Any) -> None:
        self._settings = settings_of(options)
        self._notices = Notices(self._settings)
        self._journal: SharedJournal | None = None
        self._working: set[asyncio.Task[None]] = set()

    def use_journal(self, journal: Journal) -> None:
        """Implements :class:`delf.protocols.journal.SupportsJournal`."""
        self._journal = journal if isinstance(journal, SharedJournal) else None

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Announce a request; the decision comes through the journal."""
        task = asyncio.create_task(self._tell(request))
        self._working.add(task)
        task.add_done_callback(self._working.discard)
        return None

    async def answer(self, request: ApprovalRequest) -> Decision | None:
        """Announce a question; the answer comes through the journal."""
        return await self.decide(request)

    async def _tell(self, request: ApprovalRequest) -> None:
        """Send a notice of a request, then a reminder while it is pending."""
        notice = notice_of(self._settings, request)
        began = time.time()
        try:
            record = await self._record(request)
            began = began if record is None else record.requested.at
            await self._once(request, notice, "asked")
            for minutes in sorted(self._settings.remind_minutes):
                await asyncio.sleep(max(0.0, began + minutes * 60 - time.time()))
                record = await self._record(request)
                if record is None or record.decided is not None or not record.waits:
                    return
                await self._once(request, reminder_of(notice, minutes), "reminded")
        except DelfError as error:
            _log.warning("people get no notice of %s: %s", request.request_id, error.message)

    async def _once(self, request: ApprovalRequest, notice: Notice, choice: NoticeChoice) -> None:
        """Send a notice unless any process has sent it before."""
        journal = self._journal
        if journal is None:
            self._notices.tell(notice)
            return
        noted = await journal.notes(request.task_id)
        if any(one.kind == _NOTE and one.data.get("name") == notice.name for one in noted):
            return

        async def sent() -> None:
            await journal.post(request.task_id, _NOTE, {"name": notice.name})

        self._notices.tell(notice, await self._chosen(journal, request, choice), sent)

    async def _record(self, request: ApprovalRequest) -> RequestRecord | None:
        if self._journal is None:
            return None
        found = await self._journal.find_requests(request.request_id)
        return next((r for r in found if r.requested.request_id == request.request_id), None)

    async def _chosen(
        self, journal: SharedJournal, request: ApprovalRequest, choice: NoticeChoice
    ) -> list[str]:
        """Return the mail addresses of people who may decide a request and opted in to notices."""
        try:
            people = [one for one in await journal.people() if one.revoked_at is None]
        except ConfigurationError:
            return []  # the journal keeps no people
        owner = (await journal.task(request.task_id)).key
        return [
            person.mail
            for person in people
            if choice in person.notices
            and person.mail
            and ("decide" in person.rights or (request.is_question and person.holder == owner))
            and sees(person, people, owner)
            and why_refused(request, owner, decider_of(person), Approved()) is None
        ]

    async def aclose(self) -> None:
        """Drop unsent notices."""
        for work in self._working:
            work.cancel()
        if self._working:
            await asyncio.wait(self._working)
        await self._notices.aclose()


def decider_of(person: Person) -> Decider:
    """Convert a person to the decider of a request."""
    return Decider(name=person.name, key=person.holder, teams=person.teams)


def reminder_of(notice: Notice, minutes: float) -> Notice:
    """Make the reminder of a request that has been pending for some minutes."""
    return Notice(
        name=f"{notice.name}-{minutes:g}",
        content={**notice.content, "event": "approval_reminder", "minutes": minutes},
        subject=f"still waiting: {notice.subject}",
        text=f"It has waited for {minutes:g} minutes.\n\n{notice.text}",
    )


def _in_words(error: Exception) -> str:
    """Describe a delivery failure without text from a server or a URL."""
    if isinstance(error, ConfigurationError):
        return error.message
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"SMTP {error.smtp_code}"
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return type(inner).__name__


def link(settings: ServeSettings, request: ApprovalRequest) -> str:
    """Return the URL of a request on the page."""
    return f"{settings.public_url}/#/{request.task_id}/{request.request_id}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect handler that refuses redirects, because a notice is meant for one address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that no redirect is followed."""
        return


def post(settings: ServeSettings, notice: Notice) -> None:
    """Post a notice to the webhook."""
    assert settings.webhook_url is not None  # noqa: S101 - it was looked at
    url = settings.webhook_url.get_secret_value()
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("a webhook has an http address")
    body = json.dumps(notice.content).encode()
    headers = {"content-type": "application/json", "user-agent": "delf"}
    if settings.webhook_secret is not None:
        secret = settings.webhook_secret.get_secret_value()
        headers |= signature(secret, notice.name, int(time.time()), body)
    sent = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - looked at
    # No redirect is followed: another address could be one of this network.
    proxy = proxy_for(url)
    through = {} if proxy is None else {urlsplit(url).scheme: proxy.checked(socks=None)}
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler(through))
    with opener.open(sent, timeout=_SECONDS):
        return


def mail(settings: ServeSettings, notice: Notice, to: Sequence[str]) -> None:
    """Send a notice by mail."""
    assert settings.smtp_url is not None  # noqa: S101 - it was looked at
    url = urlsplit(settings.smtp_url.get_secret_value())
    host, tls = url.hostname or "localhost", url.scheme == "smtps"
    message = EmailMessage()
    message["From"] = settings.mail_from
    message["To"] = ", ".join(to)
    message["Subject"] = notice.subject
    message.set_content(notice.text.encode("utf-8", "replace").decode())  # halves of characters
    context = ssl.create_default_context()
    opened = (
        smtplib.SMTP_SSL(host, url.port or 465, timeout=_SECONDS, context=context)
        if tls
        else smtplib.SMTP(host, url.port or 25, timeout=_SECONDS)
    )
    with opened as server:
        if not tls:
            server.ehlo()
            tls = server.has_extn("starttls")
            if tls:
                server.starttls(context=context)
        if url.username:
            if not (tls or host == "localhost" or is_loopback(host)):
                raise smtplib.SMTPNotSupportedError("a password is not sent unencrypted")
            server.login(unquote(url.username), unquote(url.password or ""))
        server.send_message(message)


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())[:100]
