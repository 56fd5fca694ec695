"""The channel ``web``: it decides nothing, and tells people that something waits on the page."""

from __future__ import annotations

import asyncio
import json
import logging
import smtplib
import ssl
import urllib.request
from collections.abc import Callable
from email.message import EmailMessage
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from delf.protocols.approval import ApprovalRequest, Decision
from delf_serve.settings import ServeSettings, settings_of

_log = logging.getLogger(__name__)

_SECONDS: Final = 10.0
_LONGEST: Final = 500


class WebChannel:
    """Implements :class:`delf.protocols.approval.ApprovalChannel`.

    Args:
        options: Fields of :class:`delf_serve.settings.ServeSettings`.
    """

    def __init__(self, **options: Any) -> None:
        self._settings = settings_of(options)
        self._sending: set[asyncio.Task[None]] = set()

    async def decide(self, request: ApprovalRequest) -> Decision | None:
        """Tell that it waits; whoever decides does so through the journal."""
        settings = self._settings
        ways: list[Callable[[ServeSettings, ApprovalRequest], None]] = []
        if settings.webhook_url is not None:
            ways.append(post)
        if settings.smtp_url is not None and settings.mail_to:
            ways.append(mail)
        for way in ways:
            task = asyncio.create_task(self._send(way, request))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return None

    async def _send(
        self, way: Callable[[ServeSettings, ApprovalRequest], None], request: ApprovalRequest
    ) -> None:
        """Send in a thread; that nobody could be told is a warning, for it waits all the same."""
        try:
            await asyncio.to_thread(way, self._settings, request)
        except (OSError, ValueError, smtplib.SMTPException) as error:
            name = type(error).__name__
            _log.warning(
                "nobody was told by %s that %s waits: %s", way.__name__, request.request_id, name
            )


def link(settings: ServeSettings, request: ApprovalRequest) -> str:
    """Where the question is on the page."""
    return f"{settings.public_url}/#/{request.task_id}/{request.request_id}"


def post(settings: ServeSettings, request: ApprovalRequest) -> None:
    """Send the question to the webhook."""
    assert settings.webhook_url is not None  # noqa: S101 - it was looked at
    url = settings.webhook_url.get_secret_value()
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("a webhook has an http address")
    content = {
        "event": "approval_requested",
        "request_id": request.request_id,
        "task_id": request.task_id,
        "task": request.task[:_LONGEST],
        "action": request.action,
        "effect": request.effect,
        "message": request.message[:_LONGEST],
        "url": link(settings, request),
    }
    sent = urllib.request.Request(  # noqa: S310 - its scheme was looked at
        url,
        json.dumps(content).encode(),
        {"content-type": "application/json", "user-agent": "delf"},
        method="POST",
    )
    with urllib.request.urlopen(sent, timeout=_SECONDS):  # noqa: S310
        return


def mail(settings: ServeSettings, request: ApprovalRequest) -> None:
    """Send the question as a mail."""
    assert settings.smtp_url is not None  # noqa: S101 - it was looked at
    url = urlsplit(settings.smtp_url.get_secret_value())
    host, tls = url.hostname or "localhost", url.scheme == "smtps"
    message = EmailMessage()
    message["From"] = settings.mail_from
    message["To"] = ", ".join(settings.mail_to)
    message["Subject"] = f"delf waits for you: {_one_line(request.action)}"
    message.set_content(
        f"{request.message[:_LONGEST]}\n\nTask: {request.task[:_LONGEST]}\n"
        f"Effect: {request.effect}\n\n{link(settings, request)}\n"
    )
    context = ssl.create_default_context()
    opened = (
        smtplib.SMTP_SSL(host, url.port or 465, timeout=_SECONDS, context=context)
        if tls
        else smtplib.SMTP(host, url.port or 25, timeout=_SECONDS)
    )
    with opened as server:
        if not tls and server.has_extn("starttls"):
            server.starttls(context=context)
        if url.username:
            server.login(unquote(url.username), unquote(url.password or ""))
        server.send_message(message)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:100]
