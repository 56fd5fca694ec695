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
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.message import EmailMessage
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote, urlencode, urlsplit

from delf.errors import ConfigurationError, DelfError
from delf.events import ApprovalAssigned, ApprovalCommented, Event, TaskFinished
from delf.network.proxies import proxy_for
from delf.network.urls import split_url
from delf.protocols.approval import ApprovalRequest, Decision
from delf.protocols.facts import RequestFact, facts, plain_lines
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
# The kind of journal note that records a sent notice.
_SENT_NOTE_KIND: Final = "notice"
_MAX_TEXT_SIZE: Final = 500
_MAX_URL_SIZE: Final = 2_000
# The maximum number of characters of a direct message; Slack accepts 3,000.
_MAX_MESSAGE_SIZE: Final = 2_900
_MAX_ANSWER_SIZE: Final = 1_000_000
# The maximum number of characters of one fact in a notice.
_MAX_FACT_SIZE: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notification for people.

    Args:
        name: The message id, which is the same for each attempt to deliver the notice.
        content: The JSON body for webhooks.
        subject: The subject of the mail.
        text: The text of the mail.
    """

    name: str
    content: Mapping[str, Any]
    subject: str
    text: str


def notice_of(settings: ServeSettings, request: ApprovalRequest) -> Notice:
    """Create the notice of a new approval request or question."""
    message = visible(request.message[:_MAX_TEXT_SIZE])
    url = link(settings, request)
    shown_facts = [_truncate(fact) for fact in facts(request)]
    content = {
        "event": "approval_requested",
        "request_id": request.request_id,
        "task_id": request.task_id,
        "task": visible(request.task[:_MAX_TEXT_SIZE]),
        "action": visible(request.action),
        "effect": request.effect,
        "asked_by": request.asked_by,
        "message": message,
        "facts": [fact.data() for fact in shown_facts],
        "url": url,
    }
    lines = "\n".join(plain_lines(shown_facts))
    if settings.public_url:
        where_to_decide = f"Decide on the page:\n{url}"
    else:
        where_to_decide = f"Decide on the page, or with: delf approvals show {request.request_id}"
    text = f"{lines}\n\n{where_to_decide}\n"
    about = request.message if request.is_question else request.action
    subject = f"delf waits for you: {_one_line(about)}"
    return Notice(name=request.request_id, content=content, subject=subject, text=text)


def _truncate(fact: RequestFact) -> RequestFact:
    """Truncate a long fact's text for a message; the server's web page shows the whole text."""
    hidden_count = len(fact.text) - _MAX_FACT_SIZE
    if hidden_count <= 0:
        return fact
    return replace(fact, text=f"{fact.text[:_MAX_FACT_SIZE]}… {hidden_count:,} more characters")


def notice_of_talk(
    settings: ServeSettings, request: ApprovalRequest, event: ApprovalCommented | ApprovalAssigned
) -> Notice:
    """Create the notice of a comment on a request, or of the assignment of the request."""
    request_notice = notice_of(settings, request)
    by = visible(event.by)
    match event:
        case ApprovalCommented():
            kind = "approval_commented"
            headline = f"{by} commented on {visible(request.action)}"
            text = visible(event.text)
        case ApprovalAssigned():
            kind = "approval_assigned"
            headline = f"{by} assigned {visible(request.action)} to you"
            text = ""
    message = f"{headline}: {text}" if text else headline
    return Notice(
        name=f"{request.request_id}-{event.seq}",
        content={
            **request_notice.content,
            "event": kind,
            "by": by,
            "message": message[:_MAX_TEXT_SIZE],
        },
        subject=f"delf: {_one_line(headline)}",
        text=f"{message}\n\n{request_notice.text}",
    )


def notice_of_end(settings: ServeSettings, task: str, end: TaskFinished) -> Notice:
    """Create the notice of a finished task."""
    task_text = visible(task[:_MAX_TEXT_SIZE])
    url = f"{settings.public_url}/#/{end.task_id}"
    result_or_error = end.text if end.state is TaskState.DONE else end.error
    message = visible((result_or_error or "")[:_MAX_TEXT_SIZE])
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
    where_to_look = url if settings.public_url else f"delf runs show {end.task_id}"
    text = f"{message}\n\nTask: {task_text}\n\n{where_to_look}\n"
    return Notice(name=f"{end.task_id}-end", content=content, subject=subject, text=text)


def ways_of(settings: ServeSettings, person: Person) -> list[NoticeWay]:
    """Return the channels through which this server can send notices to a person."""
    availability: dict[NoticeWay, bool] = {
        "mail": settings.smtp_url is not None and bool(person.mail),
        "slack": settings.slack_token is not None and bool(person.mail),
        "webhook": bool(settings.notice_hosts and person.webhook),
        "browser": True,
    }
    return [way for way, is_available in availability.items() if is_available]


# The exceptions that mean that sending failed.
#
# ``HTTPException`` is raised for a server that does not speak HTTP.
_FAILURES: Final = (
    OSError,
    ValueError,
    http.client.HTTPException,
    smtplib.SMTPException,
    ConfigurationError,
)
Way = Callable[[ServeSettings, Notice], None]
OnSent = Callable[[], Awaitable[None]]
"""Callback that is awaited once a notice was delivered through at least one channel."""


class Notices:
    """Sends notices in the background, by mail, Slack and webhooks.

    Args:
        settings: The server's settings.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work in the background, which :meth:`aclose` cancels."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Cancel the work, and drop unsent notices."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def tell(
        self,
        notice: Notice,
        to: Collection[Person] = (),
        on_sent: OnSent | None = None,
        *,
        to_server_addresses: bool = True,
    ) -> None:
        """Send a notice in the background.

        Args:
            notice: The notice.
            to: The people who opted in. Each person gets the notice through the channels of their
                choice.
            on_sent: Called and awaited once the notice was delivered through any channel.
            to_server_addresses: Whether to send the notice also to the server's own webhook and
                mail addresses.
        """
        settings = self._settings
        ways: list[Way] = []
        if settings.webhook_url is not None and to_server_addresses:
            ways.append(post)
        if settings.smtp_url is not None and settings.mail_to and to_server_addresses:
            ways.append(partial(mail, to=settings.mail_to))
        for person in to:
            ways += self._ways_to(person, to_server_addresses=to_server_addresses)
        if ways:
            self.start(self._send_all(ways, notice, on_sent))

    def _ways_to(self, person: Person, *, to_server_addresses: bool) -> Iterator[Way]:
        """Yield the functions that send a notice to a person, one for each channel they chose.

        Args:
            person: The person.
            to_server_addresses: Whether the notice is also mailed to the addresses in the setting
                ``mail_to``. A person with such an address then gets no second mail.
        """
        settings = self._settings
        gets_mail_already = to_server_addresses and person.mail in settings.mail_to
        for way in ways_of(settings, person):
            if way not in person.notice_ways:
                continue
            if way == "slack":
                yield partial(message_in_slack, address=person.mail)
            elif way == "webhook":
                yield partial(post_to, person=person)
            elif way == "mail" and not gets_mail_already:
                # Each person gets a separate mail, so that nobody sees other addresses.
                yield partial(mail, to=[person.mail])

    async def _send_all(self, ways: Sequence[Way], notice: Notice, on_sent: OnSent | None) -> None:
        arrived = await asyncio.gather(*(self._send(way, notice) for way in ways))
        if on_sent is not None and any(arrived):
            await on_sent()

    async def _send(self, way: Way, notice: Notice) -> bool:
        """Send a notice through one channel, with retries.

        Returns:
            False if all attempts failed, which is also logged.
        """
        reason = ""
        for pause in (0.0, *PAUSES):  # the first attempt is made at once
            await asyncio.sleep(pause)
            try:
                await asyncio.to_thread(way, self._settings, notice)
            except _FAILURES as error:
                reason = _describe_failure(error)
            else:
                return True
        function = getattr(way, "func", way)  # ``way`` may be a partial
        function_name = function.__name__  # such as ``post``
        _log.warning(
            "the notice %s could not be sent by %s: %s", notice.name, function_name, reason
        )
        return False


class EndNotices:
    """Notifies people when their tasks end.

    Args:
        settings: The server's settings.
        keys: The people of the server, with their API keys.
        journal: Returns the journal, which has the people as they are now.
    """

    def __init__(
        self, settings: ServeSettings, keys: Keys, journal: Callable[[], SharedJournal]
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._journal = journal
        self._notices = Notices(settings)

    def tell(self, end: TaskFinished) -> None:
        """Send a notice of a task's end, unless a person stopped the task.

        The notice goes to the server's own webhook and mail addresses, and to the user of the task
        if the user opted in.
        """
        if end.state is not TaskState.STOPPED:  # the person who stopped the task knows
            self._notices.start(self._tell(end))

    async def _tell(self, end: TaskFinished) -> None:
        """Send the notice of a task's end, also to the task's user if the user opted in."""
        journal = self._journal()
        try:
            # The journal has the text of the task without secrets.
            record = await journal.task(end.task_id)
            # The user may have been removed, or have chosen otherwise, while the task ran.
            await self._keys.reload(journal, at_once=True)
        except DelfError as error:
            _log.warning("people get no notice of the end of %s: %s", end.task_id, error.message)
            return
        notice = notice_of_end(self._settings, record.task, end)
        self._notices.tell(notice, self._recipients(record.user))

    def _recipients(self, user: str | None) -> list[Person]:
        """Return the person who submitted a task, in a list.

        The list is empty if the person has no access any more, or did not opt in.
        """
        person = self._keys.person_of(user)
        if person is None or person.revoked_at is not None or "ended" not in person.notices:
            return []
        return [person]

    async def aclose(self) -> None:
        """Drop unsent notices. Idempotent."""
        await self._notices.aclose()


class WebChannel:
    """The approval channel ``web``, which notifies people of requests and questions.

    People decide on the page, and the decisions come through the journal. The journal also records
    sent notices, so that a resumed task sends no notice twice.

    Args:
        options: Fields of :class:`delf_serve.settings.ServeSettings`.
    """

    def __init__(self, **options: Any) -> None:
        self._settings = settings_of(options)
        if self._settings.sends_notices and not self._settings.public_url:
            _log.warning(
                "mails and messages have no link to the page, because public_url of "
                "[plugins.serve] is not set"
            )
        self._notices = Notices(self._settings)
        self._journal: SharedJournal | None = None

    def use_journal(self, journal: Journal) -> None:
        """Implements :class:`delf.protocols.journal.SupportsJournal`.

        Only a shared journal has people and their choices of notices. With any other journal, each
        notice goes to the receivers in the channel's settings.
        """
        self._journal = journal if isinstance(journal, SharedJournal) else None

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Send a notice of a request. Return None: the decision comes through the journal."""
        self._notices.start(self._notify(request))
        return None

    async def answer(self, request: ApprovalRequest) -> Decision | None:
        """Send a notice of a question. Return None: the answer comes through the journal."""
        return await self.decide(request)

    async def _notify(self, request: ApprovalRequest) -> None:
        """Send a notice of a request, and reminders while the request is pending."""
        notice = notice_of(self._settings, request)
        requested_at = time.time()
        try:
            record = await self._record(request)
            if record is not None:
                requested_at = record.requested.at  # earlier, if the task was resumed since
            await self._send_once(request, notice, "asked")
            for minutes in sorted(self._settings.remind_minutes):
                remind_at = requested_at + minutes * 60
                await asyncio.sleep(max(0.0, remind_at - time.time()))
                record = await self._record(request)
                if record is None or not record.waits:
                    return
                await self._send_once(request, reminder_of(notice, minutes), "reminded")
        except DelfError as error:
            _log.warning("people get no notice of %s: %s", request.request_id, error.message)

    async def _send_once(
        self, request: ApprovalRequest, notice: Notice, choice: NoticeChoice
    ) -> None:
        """Send a notice, unless the journal records that the notice was sent before."""
        journal = self._journal
        if journal is None:
            self._notices.tell(notice)
            return
        sent_names = [
            note.data.get("name")
            for note in await journal.notes(request.task_id)
            if note.kind == _SENT_NOTE_KIND
        ]
        if notice.name in sent_names:
            return

        async def record_sent() -> None:
            await journal.post(request.task_id, _SENT_NOTE_KIND, {"name": notice.name})

        self._notices.tell(notice, await self._recipients(journal, request, choice), record_sent)

    async def _record(self, request: ApprovalRequest) -> RequestRecord | None:
        if self._journal is None:
            return None
        records = await self._journal.find_requests(request.request_id)
        return next((r for r in records if r.requested.request_id == request.request_id), None)

    async def _recipients(
        self, journal: SharedJournal, request: ApprovalRequest, choice: NoticeChoice
    ) -> list[Person]:
        """Return the people who may decide a request and have chosen to get notices of a kind.

        Args:
            journal: The journal.
            request: The request.
            choice: The kind of notice.
        """
        people = [person for person in await journal.people() if person.revoked_at is None]
        user = (await journal.task(request.task_id)).user
        return [person for person in deciders(request, user, people) if choice in person.notices]

    async def show_discussion(
        self,
        request: ApprovalRequest,
        event: ApprovalCommented | ApprovalAssigned,
        discussion: Sequence[Event],
    ) -> None:
        """Notify the assignee of an assignment, or the people whom a comment concerns."""
        journal = self._journal
        if journal is None:
            return
        try:
            people = [person for person in await journal.people() if person.revoked_at is None]
            task_user = (await journal.task(request.task_id)).user
        except DelfError as error:
            _log.warning("people get no notice of %s: %s", request.request_id, error.message)
            return
        if isinstance(event, ApprovalAssigned):
            choice = "assigned"
            concerned = [person for person in people if person.name == event.to]
        else:
            choice = "commented"
            concerned = _people_of_discussion(people, task_user, discussion)
        recipients = [
            person
            for person in concerned
            if choice in person.notices
            and person.user != event.user  # the author knows
            and sees(person, people, task_user)
        ]
        if recipients:
            notice = notice_of_talk(self._settings, request, event)
            self._notices.tell(notice, recipients, to_server_addresses=False)

    async def aclose(self) -> None:
        """Drop unsent notices."""
        await self._notices.aclose()


def _people_of_discussion(
    people: Sequence[Person], task_user: str | None, discussion: Sequence[Event]
) -> list[Person]:
    """Return the people whom a comment on a request concerns.

    They are the user of the task, the current assignee, and everybody who voted, commented or
    assigned before.
    """
    participants = {task_user, *(getattr(earlier, "user", None) for earlier in discussion)}
    assignments = [earlier for earlier in discussion if isinstance(earlier, ApprovalAssigned)]
    # An assignment has a plain name, such as ``ann``; ``user`` also has the person's unique id.
    assignee = assignments[-1].to if assignments else None
    return [person for person in people if person.user in participants or person.name == assignee]


def reminder_of(notice: Notice, minutes: float) -> Notice:
    """Create the reminder for a request that has been pending for some minutes.

    Args:
        notice: The notice of the request.
        minutes: The minutes since the request.
    """
    return Notice(
        name=f"{notice.name}-{minutes:g}",
        content={**notice.content, "event": "approval_reminder", "minutes": minutes},
        subject=f"still waiting: {notice.subject}",
        text=f"It has waited for {minutes:g} minutes.\n\n{notice.text}",
    )


def _describe_failure(error: Exception) -> str:
    """Describe a delivery failure without texts from the server, and without the URL."""
    if isinstance(error, ConfigurationError):
        return error.message
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"SMTP {error.smtp_code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return type(cause).__name__


def link(settings: ServeSettings, request: ApprovalRequest) -> str:
    """Return the URL at which the server's web page shows an approval request.

    Without ``public_url``, the URL has no host.
    """
    return f"{settings.public_url}/#/{request.task_id}/{request.request_id}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect handler that refuses redirects, because a notice is meant for one address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None, so that no redirect is followed."""
        return


def post(settings: ServeSettings, notice: Notice) -> None:
    """Post a notice to the webhook."""
    assert settings.webhook_url is not None  # noqa: S101 - called only if the setting is set
    url = settings.webhook_url.get_secret_value()
    secret = settings.webhook_secret
    _post(url, "" if secret is None else secret.get_secret_value(), notice)


def _post(url: str, secret: str, notice: Notice) -> None:
    body = json.dumps(notice.content).encode()
    headers = {"content-type": "application/json", "user-agent": "delf"}
    if secret:
        headers |= signature(secret, notice.name, int(time.time()), body)
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - checked
    response = _opener(url).open(request, timeout=_SECONDS)  # raises for an error status
    response.close()


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Return a URL opener that follows no redirects, which could lead into the private network."""
    proxy = proxy_for(url)
    proxy_by_scheme: dict[str, str] = {}
    if proxy is not None:
        # urllib supports no SOCKS proxies, so checked_address() raises for such a proxy.
        proxy_by_scheme[urlsplit(url).scheme] = proxy.checked_address(socks_module=None)
    return urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler(proxy_by_scheme))


def post_to(settings: ServeSettings, notice: Notice, person: Person) -> None:
    """Post a notice to a person's own webhook.

    Raises:
        ConfigurationError: If the server no longer permits the webhook's host.
    """
    check_webhook(settings, person.webhook)
    _post(person.webhook, person.webhook_secret, notice)


def check_webhook(settings: ServeSettings, url: str) -> None:
    """Check that the server may send notices to the URL of a person's webhook.

    Raises:
        ConfigurationError: If the URL is invalid or not https, or its host is not permitted.
    """
    parts = split_url(url)
    if parts is None:
        raise ConfigurationError("the address of the webhook cannot be read")
    host = (parts.hostname or "").rstrip(".")  # a full name may end with the dot of the root
    has_password = parts.username is not None
    is_plain_https = parts.scheme == "https" and bool(host) and not has_password
    # Check the original text, because urlsplit() removes line ends. urllib rejects blanks.
    is_printable = url.isascii() and url.isprintable() and " " not in url
    if not is_plain_https or not is_printable or len(url) > _MAX_URL_SIZE:
        raise ConfigurationError(
            "the address of a webhook begins with https:// and a host, and has no password and no "
            "blanks"
        )
    has_https_port = parts.port in (None, 443)
    is_permitted = any(fnmatchcase(host, pattern.lower()) for pattern in settings.notice_hosts)
    if not has_https_port or not is_permitted:
        raise ConfigurationError(
            f"this server sends no notices to {host[:80] or 'that host'!r}",
            hint="notice_hosts of [plugins.serve] names the hosts",
        )


def message_in_slack(settings: ServeSettings, notice: Notice, address: str) -> None:
    """Send a notice as a direct message to the Slack user with an e-mail address."""
    found = call_slack(settings, "users.lookupByEmail", {"email": address})
    try:
        user_id: str = found["user"]["id"]
    except (KeyError, TypeError):
        raise ConfigurationError("Slack's answer names no user") from None
    text = f"{notice.subject}\n{notice.text}"[:_MAX_MESSAGE_SIZE]
    plain = {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}
    # Slack interprets ``text`` as markup, in which others could write mentions and links.
    escaped = notice.subject.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    message = {"channel": user_id, "text": escaped, "blocks": json.dumps([plain])}
    call_slack(settings, "chat.postMessage", message)


def call_slack(settings: ServeSettings, method: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Call a method of Slack's API.

    Raises:
        ConfigurationError: If Slack refuses.
    """
    assert settings.slack_token is not None  # noqa: S101 - notices go to Slack only with a token
    url = f"{settings.slack_api_url.rstrip('/')}/{method}"
    headers = {"authorization": f"Bearer {settings.slack_token.get_secret_value()}"}
    body = urlencode(fields).encode()
    request = urllib.request.Request(url, body, headers)  # noqa: S310 - the URL is a setting
    with _opener(url).open(request, timeout=_SECONDS) as response:
        data: Any = json.loads(response.read(_MAX_ANSWER_SIZE))
    if not isinstance(data, dict):
        raise ConfigurationError("Slack's answer is not an object")
    answer = cast("dict[str, Any]", data)
    if not answer.get("ok"):
        raise ConfigurationError(f"Slack says {str(answer.get('error'))[:60]}")
    return answer


def mail(settings: ServeSettings, notice: Notice, to: Sequence[str]) -> None:
    """Send a notice by mail."""
    assert settings.smtp_url is not None  # noqa: S101 - called only if the setting is set
    url = urlsplit(settings.smtp_url.get_secret_value())
    host = url.hostname or "localhost"
    is_encrypted = url.scheme == "smtps"
    message = EmailMessage()
    message["From"] = settings.mail_from
    message["To"] = ", ".join(to)
    message["Subject"] = notice.subject
    message.set_content(notice.text.encode("utf-8", "replace").decode())  # no lone surrogates
    context = ssl.create_default_context()
    if is_encrypted:
        connection = smtplib.SMTP_SSL(host, url.port or 465, timeout=_SECONDS, context=context)
    else:
        connection = smtplib.SMTP(host, url.port or 25, timeout=_SECONDS)
    with connection as server:
        if not is_encrypted:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=context)
                is_encrypted = True
        if url.username:
            is_on_this_machine = host == "localhost" or is_loopback(host)
            if not is_encrypted and not is_on_this_machine:
                raise smtplib.SMTPNotSupportedError("a password is not sent unencrypted")
            server.login(unquote(url.username), unquote(url.password or ""))
        server.send_message(message)


def _one_line(text: str) -> str:
    return " ".join(visible(text).split())[:100]
