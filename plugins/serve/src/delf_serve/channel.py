"""The channel ``web``: notifies people of requests, which they decide on the page."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.message import EmailMessage
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlencode, urlsplit

from delf.errors import ConfigurationError, DelfError
from delf.events import ApprovalAssigned, ApprovalCommented, Event, TaskFinished
from delf.network.proxies import proxy_for
from delf.protocols.approval import ApprovalRequest, Decision
from delf.protocols.facts import Fact, facts, plain_lines
from delf.protocols.journal import Journal, RequestRecord
from delf.protocols.people import NoticeChoice, Person, sees
from delf.protocols.shared_journal import SharedJournal
from delf.terminal import visible
from delf.types import TaskState
from delf_engine.approvals.ballot import deciders
from delf_serve.clients import is_loopback
from delf_serve.keys import Keys
from delf_serve.people import NoticeWay
from delf_serve.settings import ServeSettings, settings_of
from delf_serve.signatures import signature

_log = logging.getLogger(__name__)

_SECONDS: Final = 10.0
PAUSES: Final = (1.0, 5.0, 25.0)
"""The pauses in seconds between attempts to send a notice."""
_NOTE: Final = "notice"
"""The kind of journal note that records a sent notice."""
_LONGEST: Final = 500
_LONGEST_URL: Final = 2_000
_MAX_MESSAGE_SIZE: Final = 2_900
"""Characters of a direct message in Slack, which takes 3,000."""
_MAX_ANSWER_SIZE: Final = 1_000_000
_MAX_FACT_SIZE: Final = 20_000
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
    shown_facts = [_truncate(fact) for fact in facts(request)]
    content = {
        "event": "approval_requested",
        "request_id": request.request_id,
        "task_id": request.task_id,
        "task": visible(request.task[:_LONGEST]),
        "action": visible(request.action),
        "effect": request.effect,
        "asked_by": request.asked_by,
        "message": message,
        "facts": [fact.data() for fact in shown_facts],
        "url": url,
    }
    lines = "\n".join(plain_lines(shown_facts))
    text = f"{lines}\n\nDecide on the page:\n{url}\n"
    about = request.message if request.is_question else request.action
    subject = f"delf waits for you: {_one_line(about)}"
    return Notice(name=request.request_id, content=content, subject=subject, text=text)


def _truncate(fact: Fact) -> Fact:
    """Truncate a fact; the page has the whole text."""
    hidden_count = len(fact.text) - _MAX_FACT_SIZE
    if hidden_count <= 0:
        return fact
    return replace(fact, text=f"{fact.text[:_MAX_FACT_SIZE]}… {hidden_count:,} more characters")


def notice_of_talk(
    settings: ServeSettings, request: ApprovalRequest, event: ApprovalCommented | ApprovalAssigned
) -> Notice:
    """Make the notice of a comment or an assignment."""
    request_notice, by = notice_of(settings, request), visible(event.by)
    match event:
        case ApprovalCommented():
            kind, headline = "approval_commented", f"{by} commented on {visible(request.action)}"
            text = visible(event.text)
        case ApprovalAssigned():
            kind, headline = "approval_assigned", f"{by} assigned {visible(request.action)} to you"
            text = ""
    message = f"{headline}{': ' if text else ''}{text}"
    return Notice(
        name=f"{request.request_id}-{event.seq}",
        content={**request_notice.content, "event": kind, "by": by, "message": message[:_LONGEST]},
        subject=f"delf: {_one_line(headline)}",
        text=f"{message}\n\n{request_notice.text}",
    )


def notice_of_end(settings: ServeSettings, task: str, end: TaskFinished) -> Notice:
    """Make the notice of a finished task."""
    task_text, url = visible(task[:_LONGEST]), f"{settings.public_url}/#/{end.task_id}"
    message = visible((end.text if end.status else end.error or "")[:_LONGEST])
    content = {
        "event": "task_finished",
        "task_id": end.task_id,
        "task": task_text,
        "state": end.state,
        "message": message,
        "cost_usd": end.cost_usd,
        "url": url,
    }
    subject = f"delf: {end.state}: {_one_line(task)}"
    text = f"{message}\n\nTask: {task_text}\n\n{url}\n"
    return Notice(name=f"{end.task_id}-end", content=content, subject=subject, text=text)


def ways_of(settings: ServeSettings, person: Person) -> list[NoticeWay]:
    """Return the ways in which the server can send notices to a person."""
    works: dict[NoticeWay, bool] = {
        "mail": settings.smtp_url is not None and bool(person.mail),
        "slack": settings.slack_token is not None and bool(person.mail),
        "webhook": bool(settings.notice_hosts and person.webhook),
        "browser": True,
    }
    return [way for way, is_there in works.items() if is_there]


_FAILURES: Final = (
    OSError,
    ValueError,
    http.client.HTTPException,
    smtplib.SMTPException,
    ConfigurationError,
)
"""The failures of sending; a server that is no HTTP server raises ``HTTPException``."""
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

    def tell(
        self,
        notice: Notice,
        to: Collection[Person] = (),
        sent: Sent | None = None,
        *,
        to_all: bool = True,
    ) -> None:
        """Send a notice in the background.

        Args:
            notice: The notice.
            to: The people who opted in; each gets the notice in their own ways.
            sent: Awaited once the notice was delivered.
            to_all: Whether to send the notice also to the server's own webhook and mail addresses.
        """
        settings = self._settings
        ways: list[Way] = []
        if settings.webhook_url is not None and to_all:
            ways.append(post)
        if settings.smtp_url is not None and settings.mail_to and to_all:
            ways.append(partial(mail, to=settings.mail_to))
        for person in to:
            ways += self._ways_to(person, to_all=to_all)
        if ways:
            task = asyncio.create_task(self._send_all(ways, notice, sent))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _ways_to(self, person: Person, *, to_all: bool) -> Iterator[Way]:
        """Yield the ways to a person that the person chose and the server has."""
        settings = self._settings
        # Each person gets a separate mail, so that nobody sees other addresses.
        has_mail = to_all and person.mail in settings.mail_to
        for way in ways_of(settings, person):
            if way in person.notice_ways:
                match way:
                    case "mail" if not has_mail:
                        yield partial(mail, to=[person.mail])
                    case "slack":
                        yield partial(message_in_slack, address=person.mail)
                    case "webhook":
                        yield partial(post_to, person=person)
                    case _:
                        pass

    async def _send_all(self, ways: Sequence[Way], notice: Notice, sent: Sent | None) -> None:
        arrived = await asyncio.gather(*(self._send(way, notice) for way in ways))
        if sent is not None and any(arrived):
            await sent()

    async def _send(self, way: Way, notice: Notice) -> bool:
        """Send a notice in a thread; return False with a warning if all attempts fail."""
        for pause in (*PAUSES, None):
            try:
                await asyncio.to_thread(way, self._settings, notice)
            except _FAILURES as error:
                if pause is None:
                    reason = _describe_failure(error)
                    way_name = getattr(way, "func", way).__name__
                    _log.warning("no notice by %s that %s waits: %s", way_name, notice.name, reason)
                    return False
                await asyncio.sleep(pause)
            else:
                return True
        return False


class EndNotices:
    """Notifies people of the ends of their tasks.

    Args:
        settings: The server's settings.
        keys: The people.
    """

    def __init__(self, settings: ServeSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys
        self._notices = Notices(settings)

    def tell(self, task: str, end: TaskFinished, owner: str | None) -> None:
        """Send a notice of a task's end, unless somebody stopped the task.

        Args:
            task: The text of the task.
            end: The end.
            owner: The owner, who gets the notice in their own ways if they opted in.
        """
        if end.state is TaskState.STOPPED:  # the person who stopped it knows
            return
        person = self._keys.known(owner)
        wants = person is not None and person.revoked_at is None and "ended" in person.notices
        to = [person] if person is not None and wants else []
        self._notices.tell(notice_of_end(self._settings, task, end), to)

    async def aclose(self) -> None:
        """Drop unsent notices. Idempotent."""
        await self._notices.aclose()


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
            await self._send_once(request, notice, "asked")
            for minutes in sorted(self._settings.remind_minutes):
                await asyncio.sleep(max(0.0, began + minutes * 60 - time.time()))
                record = await self._record(request)
                if record is None or record.decided is not None or not record.waits:
                    return
                await self._send_once(request, reminder_of(notice, minutes), "reminded")
        except DelfError as error:
            _log.warning("people get no notice of %s: %s", request.request_id, error.message)

    async def _send_once(
        self, request: ApprovalRequest, notice: Notice, choice: NoticeChoice
    ) -> None:
        """Send a notice unless any process has sent it before."""
        journal = self._journal
        if journal is None:
            self._notices.tell(notice)
            return
        noted = await journal.notes(request.task_id)
        if any(note.kind == _NOTE and note.data.get("name") == notice.name for note in noted):
            return

        async def sent() -> None:
            await journal.post(request.task_id, _NOTE, {"name": notice.name})

        self._notices.tell(notice, await self._recipients(journal, request, choice), sent)

    async def _record(self, request: ApprovalRequest) -> RequestRecord | None:
        if self._journal is None:
            return None
        records = await self._journal.find_requests(request.request_id)
        return next((r for r in records if r.requested.request_id == request.request_id), None)

    async def _recipients(
        self, journal: SharedJournal, request: ApprovalRequest, choice: NoticeChoice
    ) -> list[Person]:
        """Return the people who may decide a request and opted in to a kind of notices."""
        try:
            people = [person for person in await journal.people() if person.revoked_at is None]
        except ConfigurationError:
            return []  # the journal keeps no people
        owner = (await journal.task(request.task_id)).key
        return [person for person in deciders(request, owner, people) if choice in person.notices]

    async def show_discussion(
        self,
        request: ApprovalRequest,
        event: ApprovalCommented | ApprovalAssigned,
        so_far: Sequence[Event],
    ) -> None:
        """Notify the assignee about an assignment, or the participants about a comment."""
        journal = self._journal
        if journal is None:
            return
        try:
            everybody = [each for each in await journal.people() if each.revoked_at is None]
            owner = (await journal.task(request.task_id)).key
        except DelfError as error:
            _log.warning("people get no notice of %s: %s", request.request_id, error.message)
            return
        readers = [person for person in everybody if person.holder != event.key]
        readers = [person for person in readers if sees(person, everybody, owner)]
        if isinstance(event, ApprovalAssigned):
            to = [p for p in readers if p.name == event.to and "assigned" in p.notices]
        else:
            participants = {owner, *(getattr(earlier, "key", None) for earlier in so_far)}
            assignees = [earlier.to for earlier in so_far if isinstance(earlier, ApprovalAssigned)]
            to = [
                person
                for person in readers
                if "commented" in person.notices
                and (person.holder in participants or person.name in assignees[-1:])
            ]
        if to:
            self._notices.tell(notice_of_talk(self._settings, request, event), to, to_all=False)

    async def aclose(self) -> None:
        """Drop unsent notices."""
        for work in self._working:
            work.cancel()
        if self._working:
            await asyncio.wait(self._working)
        await self._notices.aclose()


def reminder_of(notice: Notice, minutes: float) -> Notice:
    """Make the reminder of a request that has been pending for some minutes."""
    return Notice(
        name=f"{notice.name}-{minutes:g}",
        content={**notice.content, "event": "approval_reminder", "minutes": minutes},
        subject=f"still waiting: {notice.subject}",
        text=f"It has waited for {minutes:g} minutes.\n\n{notice.text}",
    )


def _describe_failure(error: Exception) -> str:
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
    """A redirect handler that follows no redirects, because a notice is meant for one address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that no redirect is followed."""
        return


def post(settings: ServeSettings, notice: Notice) -> None:
    """Post a notice to the webhook."""
    assert settings.webhook_url is not None  # noqa: S101 - chosen as a way only if it is set
    url = settings.webhook_url.get_secret_value()
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("a webhook has an http address")
    secret = settings.webhook_secret
    _post(url, "" if secret is None else secret.get_secret_value(), notice)


def _post(url: str, secret: str, notice: Notice) -> None:
    body = json.dumps(notice.content).encode()
    headers = {"content-type": "application/json", "user-agent": "delf"}
    if secret:
        headers |= signature(secret, notice.name, int(time.time()), body)
    post = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - looked at
    with _opener(url).open(post, timeout=_SECONDS):
        return


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Return an opener that follows no redirects, which could lead into this network."""
    proxy = proxy_for(url)
    through = {} if proxy is None else {urlsplit(url).scheme: proxy.checked_address(socks=None)}
    return urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler(through))


def post_to(settings: ServeSettings, notice: Notice, person: Person) -> None:
    """Post a notice to a person's own webhook, if the server still permits the host."""
    check_webhook(settings, person.webhook)
    _post(person.webhook, person.webhook_secret, notice)


def check_webhook(settings: ServeSettings, url: str) -> None:
    """Check that a person may have notices sent to an address.

    Raises:
        ConfigurationError: If the address is no https address, or its host is not permitted.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        raise ConfigurationError("the address of the webhook cannot be read") from None
    # urlsplit() removes line ends, and urllib sends no blanks.
    is_plain = url.isascii() and url.isprintable() and " " not in url and len(url) <= _LONGEST_URL
    if parts.scheme != "https" or parts.username is not None or not is_plain:
        raise ConfigurationError(
            "the address of a webhook begins with https:// and has no password and no blanks"
        )
    if port not in (None, 443) or not any(
        fnmatchcase(host, one.lower()) for one in settings.notice_hosts
    ):
        raise ConfigurationError(
            f"this server sends no notices to {host[:80] or 'that host'!r}",
            hint="notice_hosts of [plugins.serve] names the hosts",
        )


def message_in_slack(settings: ServeSettings, notice: Notice, address: str) -> None:
    """Send a notice as a direct message to the Slack user with a mail address."""
    user = call_slack(settings, "users.lookupByEmail", {"email": address})
    text = f"{notice.subject}\n{notice.text}"[:_MAX_MESSAGE_SIZE]
    plain = {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}
    # Slack reads this text as markup: mentions and links in what others wrote.
    short = notice.subject.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    message = {"channel": user["user"]["id"], "text": short}
    call_slack(settings, "chat.postMessage", {**message, "blocks": json.dumps([plain])})


def call_slack(settings: ServeSettings, method: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Call a method of Slack's API.

    Raises:
        ConfigurationError: If Slack refuses.
    """
    assert settings.slack_token is not None  # noqa: S101 - notices go to Slack only with a token
    url = f"{settings.slack_api_url.rstrip('/')}/{method}"
    headers = {"authorization": f"Bearer {settings.slack_token.get_secret_value()}"}
    post = urllib.request.Request(url, urlencode(fields).encode(), headers)  # noqa: S310 - a setting
    with _opener(url).open(post, timeout=_SECONDS) as answer:
        data: dict[str, Any] = json.loads(answer.read(_MAX_ANSWER_SIZE))
    if not data.get("ok"):
        raise ConfigurationError(f"Slack says {str(data.get('error'))[:60]}")
    return data


def mail(settings: ServeSettings, notice: Notice, to: Sequence[str]) -> None:
    """Send a notice by mail."""
    assert settings.smtp_url is not None  # noqa: S101 - chosen as a way only if it is set
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
