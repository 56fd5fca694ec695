"""The approval channel ``web``: a webhook and a mail say that something waits."""

from __future__ import annotations

import email
import email.policy
import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from delf.testing import ApprovalContract
from delf_serve import channel
from delf_serve.channel import WebChannel
from delf_serve.signatures import signature
from support.certificates import tls
from support.server import free_port
from support.until import until, until_now


class TestWeb(ApprovalContract):
    """A channel that tells people of a request, who answer on the page."""

    people = frozenset({"is away"})

    @pytest.fixture
    async def channel_to_person_who(self):
        made = []

        def make(_person):
            nobody = f"http://127.0.0.1:{free_port()}/hook"
            smtp = f"smtp://127.0.0.1:{free_port()}"
            made.append(WebChannel(webhook_url=nobody, smtp_url=smtp, mail_to=["ann@us.example"]))
            return made[-1]

        yield make
        for web in made:
            await web.aclose()


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # of the standard's own example
PASSWORD = "p@ss/word"


class Receiver:
    """A webhook on loopback.

    Args:
        answers: A status for each message; 0 drops the connection, and later ones are 204.
        content: The body of each answer.
    """

    def __init__(self, answers: Sequence[int] = (), content: bytes = b"") -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        left = list(answers)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers["content-length"]))
                headers = {name.lower(): value for name, value in handler.headers.items()}
                self.got.append((headers, body))
                status = left.pop(0) if left else 204
                if not status:
                    handler.close_connection = True
                    return
                handler.send_response(status)
                handler.send_header("location", "/elsewhere")
                handler.end_headers()
                handler.wfile.write(content)

            do_GET = do_POST

            def log_message(handler, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/very-secret-part"
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receive(monkeypatch) -> Iterator[Any]:
    """Opens webhooks and configures the channel to send to them."""
    opened: list[Receiver] = []

    def open_one(*answers: int) -> Receiver:
        opened.append(Receiver(answers))
        monkeypatch.setenv("DELF_SERVE_WEBHOOK_URL", opened[-1].url)
        return opened[-1]

    yield open_one
    for receiver in opened:
        receiver.close()


@dataclass
class Mailbox:
    """The mails that an SMTP server accepted, and how many it refuses first."""

    port: int
    refusals: list[str] = field(default_factory=list)
    mails: list[tuple[list[str], EmailMessage]] = field(default_factory=list)
    logins: list[tuple[bool, bytes]] = field(default_factory=list)

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:
        if self.refusals:
            return self.refusals.pop(0)
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.rcpt_tos, cast("EmailMessage", message)))
        return "250 OK"

    def authenticate(self, server: SMTP, session: Any, *rest: Any) -> AuthResult:
        given = rest[-1]
        assert isinstance(given, LoginPassword)
        self.logins.append((session.ssl is not None, given.login))
        is_right = given.password == PASSWORD.encode()
        return AuthResult(success=is_right, handled=is_right)


class Mailserver(Controller):
    """A server that tracks its connections, so that a test can wait for their end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.connections: list[Any] = []

    def factory(self) -> Any:
        self.connections.append(super().factory())
        return self.connections[-1]

    def stop(self, *args: Any, **options: Any) -> None:
        until_now(lambda: not any(each.transport for each in self.connections))
        super().stop(*args, **options)


@contextmanager
def smtp(host: str = "127.0.0.1", **options: Any) -> Iterator[Mailbox]:
    """Start an SMTP server, with TLS (``ssl_context``) or STARTTLS (``tls_context``)."""
    box = Mailbox(free_port())
    server = Mailserver(
        box, hostname=host, port=box.port, authenticator=box.authenticate, **options
    )  # fmt: skip
    server.start()
    try:
        yield box
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def quickly(monkeypatch) -> None:
    monkeypatch.setattr(channel, "PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setenv("DELF_SERVE_PUBLIC_URL", "https://delf.example.com/")


@pytest.fixture
def trusted(tmp_path, monkeypatch) -> ssl.SSLContext:
    """The TLS context of a server whose certificate this process trusts."""
    of_server, _ = tls(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    return of_server


def mailing(monkeypatch, box: Mailbox, scheme: str = "smtp", login: str = "", host="127.0.0.1"):
    monkeypatch.setenv("DELF_SERVE_SMTP_URL", f"{scheme}://{login}{host}:{box.port}")
    monkeypatch.setenv("DELF_SERVE_MAIL_TO", '["ada@example.com", "bob@example.com"]')


async def ask(serve: Any) -> tuple[Any, dict[str, Any]]:
    """Open a server with a waiting task; return it and the task's question."""
    server = await serve(agent={"approvals": ["web"]})
    accepted = await server.run("print(await send('bob'))")
    return server, await server.question(accepted["task_id"])


async def approve(server: Any, asked: dict[str, Any]) -> None:
    """Approve as a person who was not notified."""
    place = f"/approvals/{asked['request_id']}"
    assert (await server.client.post(place, json={"decision": "approve"})).is_success
    assert (await server.until(asked["task_id"], "done"))["result"] == "sent 1 to bob"


async def test_webhook_gets_a_notice_with_a_link(serve, receive):
    receiver = receive()
    server, asked = await ask(serve)
    await until(lambda: receiver.got)
    headers, body = receiver.got[0]
    shown = json.loads(body)
    place = f"/#/{asked['task_id']}/{asked['request_id']}"
    assert shown["url"] == f"https://delf.example.com{place}"
    assert (shown["event"], shown["action"], shown["effect"]) == (
        "approval_requested", "send", "irreversible",
    )  # fmt: skip
    assert shown["message"] == "send(to='bob')"
    assert "webhook-signature" not in headers
    await approve(server, asked)
    await until(lambda: len(receiver.got) == 2)
    assert json.loads(receiver.got[1][1])["event"] == "task_finished"


async def test_notice_of_an_end_has_no_declared_secret(serve, receive):
    receiver, secret = receive(), "sk-declared-secret-4711"
    server = await serve(agent={"providers": {"openai": secret}})
    task = await server.run("print('done')", f"use {secret}")
    await until(lambda: receiver.got)
    text = receiver.got[0][1].decode()
    assert task["task_id"] in text
    assert "use [redacted]" in text
    assert secret not in text


async def test_webhook_and_mail_report_the_end_of_tasks(serve, receive, monkeypatch):
    receiver = receive()
    with smtp() as box:
        mailing(monkeypatch, box)
        server = await serve()
        stopped = await server.run("print(await hold())")
        await server.until(stopped["task_id"], "running")
        await server.client.post(f"/tasks/{stopped['task_id']}/cancel")
        failed = await server.run("print(1 / 0)", "divide", wait=20)
        assert failed["state"] == "failed"
        await until(lambda: receiver.got and box.mails)
        (message,) = [json.loads(body) for _, body in receiver.got]
        assert (message["event"], message["state"]) == ("task_finished", "failed")
        assert message["url"] == f"https://delf.example.com/#/{failed['task_id']}"
        assert "ZeroDivisionError" in message["message"]
        assert len(box.mails) == 1


async def test_signed_notice_can_be_verified(serve, receive, monkeypatch):
    monkeypatch.setenv("DELF_SERVE_WEBHOOK_SECRET", SECRET)
    receiver = receive()
    _, asked = await ask(serve)
    await until(lambda: receiver.got)
    headers, body = receiver.got[0]
    assert headers["webhook-id"] == asked["request_id"]
    at = int(headers["webhook-timestamp"])
    assert headers.items() >= signature(SECRET, asked["request_id"], at, body).items()


def test_signature_follows_standard_webhooks():
    name, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}'
    signed = signature(SECRET, name, 1614265330, body)
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signature("a text", name, 1, body) != signature("a text", name, 2, body)


async def test_failing_webhook_is_retried(serve, receive, caplog):
    receiver = receive(503, 0, 429)
    await ask(serve)
    await until(lambda: len(receiver.got) == 4)
    assert len({body for _, body in receiver.got}) == 1
    assert "could not be sent by" not in caplog.text


@pytest.mark.parametrize(
    ("answers", "tries", "why"),
    [((302,) * 9, 4, "HTTP 302"), ((500,) * 9, 4, "HTTP 500")],
)
async def test_refusing_webhook_fails_no_task(serve, receive, caplog, answers, tries, why):
    receiver = receive(*answers)
    server, asked = await ask(serve)
    await until(lambda: "could not be sent by" in caplog.text)
    assert len(receiver.got) == tries
    assert f"the notice {asked['request_id']} could not be sent by post: {why}" in caplog.text
    assert "very-secret-part" not in caplog.text
    await approve(server, asked)


async def test_mail_without_a_public_url_names_commands(serve, monkeypatch, caplog):
    with smtp() as box:
        mailing(monkeypatch, box)
        monkeypatch.setenv("DELF_SERVE_PUBLIC_URL", "")
        server, asked = await ask(serve)
        await until(lambda: box.mails)
        await approve(server, asked)
        await until(lambda: len(box.mails) == 2)  # the mail of the task's end
    waits, ended = (message.get_content() for _, message in box.mails)
    assert f"delf approvals show {asked['request_id']}" in waits
    assert f"delf runs show {asked['task_id']}" in ended
    assert "/#/" not in waits + ended
    assert "have no link to the page" in caplog.text


async def test_mail_contains_a_link(serve, monkeypatch):
    with smtp() as box:
        mailing(monkeypatch, box)
        server, asked = await ask(serve)
        await until(lambda: box.mails)
        await approve(server, asked)
        await until(lambda: len(box.mails) == 2)  # the mail of the task's end
    to, message = box.mails[0]
    assert to == ["ada@example.com", "bob@example.com"]
    assert message["Subject"] == "delf waits for you: send"
    text = message.get_content()
    assert "to: bob" in text
    assert f"https://delf.example.com/#/{asked['task_id']}/{asked['request_id']}" in text


async def test_password_is_sent_after_starttls(serve, monkeypatch, trusted):
    with smtp(tls_context=trusted, auth_require_tls=True) as box:
        mailing(monkeypatch, box, login="ada:p%40ss%2Fword@")
        await ask(serve)
        await until(lambda: box.mails)
    assert box.logins == [(True, b"ada")]


async def test_smtps_server_is_supported(serve, monkeypatch, trusted):
    with smtp(ssl_context=trusted, auth_require_tls=False) as box:
        mailing(monkeypatch, box, "smtps", "ada:p%40ss%2Fword@")
        await ask(serve)
        await until(lambda: box.mails)
    assert len(box.logins) == 1


async def test_untrusted_mail_certificate_gets_no_password(serve, monkeypatch, tmp_path, caplog):
    of_server, _ = tls(tmp_path)
    with smtp(tls_context=of_server, auth_require_tls=True) as box:
        mailing(monkeypatch, box, login="ada:p%40ss%2Fword@")
        server, asked = await ask(serve)
        await until(lambda: "could not be sent by" in caplog.text)
        await approve(server, asked)
        await until(lambda: caplog.text.count("could not be sent by") == 2)  # of its end, too
    assert (box.logins, box.mails) == ([], [])
    assert "SSLCertVerificationError" in caplog.text


async def test_password_is_not_sent_unencrypted_to_another_machine(serve, monkeypatch, caplog):
    with smtp("0.0.0.0", auth_require_tls=False) as box:  # reached, and not known as loopback
        mailing(monkeypatch, box, login="ada:p%40ss%2Fword@", host="0.0.0.0")
        server, asked = await ask(serve)
        await until(lambda: "could not be sent by" in caplog.text)
        await approve(server, asked)
        await until(lambda: caplog.text.count("could not be sent by") == 2)  # of its end, too
    assert (box.logins, box.mails) == ([], [])
    assert "SMTPNotSupportedError" in caplog.text


async def test_wrong_mail_password_is_not_logged_and_fails_no_task(serve, monkeypatch, caplog):
    with smtp(auth_require_tls=False) as box:
        mailing(monkeypatch, box, login="ada:another-one@")
        server, asked = await ask(serve)
        await until(lambda: "could not be sent by" in caplog.text)
        await approve(server, asked)
        await until(lambda: caplog.text.count("could not be sent by") == 2)  # of its end, too
    assert (set(box.logins), box.mails) == ({(False, b"ada")}, [])
    assert "could not be sent by mail" in caplog.text
    assert "SMTP 535" in caplog.text
    assert "another-one" not in caplog.text
