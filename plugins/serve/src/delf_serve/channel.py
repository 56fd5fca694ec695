"""The channel ``web``: it decides nothing, and tells people that something waits on the page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import smtplib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from delf.errors import ConfigurationError
from delf.events import TaskFinished
from delf.network.proxies import proxy_for
from delf.protocols.approval import ApprovalRequest, Decision
from delf.protocols.facts import Fact, facts, plain_lines
from delf.terminal import visible
from delf_serve.clients import is_loopback
from delf_serve.settings import ServeSettings, settings_of

_log = logging.getLogger(__name__)

_SECONDS: Final = 10.0
PAUSES: Final = (1.0, 5.0, 25.0)
"""Seconds before it is tried again."""
_LONGEST: Final = 500
_MOST_OF_A_FACT: Final = 20_000
"""Characters of a fact in a notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that people are told.

    Args:
        name: Of the message; the same for each try.
        content: What the webhook is sent.
        subject: Of the mail.
        text: Of the mail.
    """

    name: str
    content: Mapping[str, Any]
    subject: str
    text: str


def notice_of(settings: ServeSettings, request: ApprovalRequest) -> Notice:
    """The notice that a request waits."""
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
    subject = f"delf waits for you: {_one_line(request.action)}"
    return Notice(name=request.request_id, content=content, subject=subject, text=text)


def _cut(fact: Fact) -> Fact:
    """A fact of bounded length: nobody decides with a notice, and the page has all of it."""
    left = len(fact.text) - _MOST_OF_A_FACT
    if left <= 0:
        return fact
    return replace(fact, text=f"{fact.text[:_MOST_OF_A_FACT]}… {left:,} more characters")


def notice_of_end(settings: ServeSettings, task: str, end: TaskFinished) -> Notice:
    """The notice that a task is over."""
    words, url = visible(task[:_LONGEST]), f"{settings.public_url}/#/{end.task_id}"
    told = visible((end.text if end.status else end.error or "")[:_LONGEST])
    content = {
        "event": "task_finished",
        "task_id": end.task_id,
        "task": words,
        "state": end.state,
        "message": told,
        "cost_usd": end.cost_usd,
        "url": url,
    }
    subject = f"delf: {end.state}: {_one_line(task)}"
    text = f"{told}\n\nTask: {words}\n\n{url}\n"
    return Notice(name=f"{end.task_id}-end", content=content, subject=subject, text=text)


Way = Callable[[ServeSettings, Notice], None]


class Notices:
    """Tells people by the ways that are set.

    Args:
        settings: The ways.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._sending: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Give up what was not sent yet."""
        for work in self._sending:
            work.cancel()
        if self._sending:
            await asyncio.wait(self._sending)

    def tell(self, notice: Notice) -> None:
        """Send a notice; nobody waits for that."""
        settings = self._settings
        ways: list[Way] = []
        if settings.webhook_url is not None:
            ways.append(post)
        if settings.smtp_url is not None and settings.mail_to:
            ways.append(mail)
        for way in ways:
            task = asyncio.create_task(self._send(way, notice))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, way: Way, notice: Notice) -> None:
        """Send in a thread; that nobody could be told is a warning, for it waits anyway."""
        for pause in (*PAUSES, None):
            try:
                await asyncio.to_thread(way, self._settings, notice)
            except (OSError, ValueError, smtplib.SMTPException, ConfigurationError) as error:
                if pause is None:
                    name, what = notice.name, _in_words(error)
                    _log.warning(
                        "nobody was told by %s that %s waits: %s", way.__name__, name, what
                    )
                    return
                await asyncio.sleep(pause)
            else:
                return


class WebChannel:
    """Implements :class:`delf.protocols.approval.ApprovalChannel`.

    Args:
        options: Fields of :class:`delf_serve.settings.ServeSettings`.
    """

    def __init__(self, **options: Any) -> None:
        self._settings = settings_of(options)
        self._notices = Notices(self._settings)

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Tell that it waits; whoever decides does so through the journal."""
        self._notices.tell(notice_of(self._settings, request))
        return None

    async def aclose(self) -> None:
        """Give up what was not sent yet."""
        await self._notices.aclose()


def _in_words(error: Exception) -> str:
    """Describe a failure without a server's or an address's own words."""
    if isinstance(error, ConfigurationError):
        return error.message
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, smtplib.SMTPResponseException):
        return f"SMTP {error.smtp_code}"
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return type(inner).__name__


def link(settings: ServeSettings, request: ApprovalRequest) -> str:
    """Return the address of the question on the page."""
    return f"{settings.public_url}/#/{request.task_id}/{request.request_id}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that points elsewhere is a refusal: what is told is for one address."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing."""
        return


def post(settings: ServeSettings, notice: Notice) -> None:
    """Send a notice to the webhook."""
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


def signature(secret: str, name: str, at: int, body: bytes) -> dict[str, str]:
    """The headers by which a receiver knows that a message is genuine and new.

    They are those of https://www.standardwebhooks.com, for which there are libraries.

    Args:
        secret: Any text, or ``whsec_`` and base64.
        name: Of the message; the same for each try.
        at: Unix time in seconds.
        body: What is sent.
    """
    coded = secret.removeprefix("whsec_")
    key = secret.encode() if coded == secret else base64.b64decode(coded)
    signed = hmac.digest(key, f"{name}.{at}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def mail(settings: ServeSettings, notice: Notice) -> None:
    """Send a notice as a mail."""
    assert settings.smtp_url is not None  # noqa: S101 - it was looked at
    url = urlsplit(settings.smtp_url.get_secret_value())
    host, tls = url.hostname or "localhost", url.scheme == "smtps"
    message = EmailMessage()
    message["From"] = settings.mail_from
    message["To"] = ", ".join(settings.mail_to)
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
