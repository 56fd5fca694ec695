"""Tests of HTTP requests: which are retried, and which errors are reported."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from delf.errors import ConnectionUnavailableError, ToolRefusedError
from delf_calendar import Calendar
from delf_docs import Docs
from delf_drive import Drive
from delf_gmail import Gmail
from delf_google.errors import GoogleError, LoginError, LostAnswerError, Problem, QuotaError
from delf_google.requests import Answer, Request
from delf_google.uploads import upload
from delf_sheets import Sheets
from support.google import GoogleServer
from support.google.fixtures import USER

LABELS = "gmail.users.labels.list"
SEND = "gmail.users.messages.send"


@pytest.fixture
async def gmail(connect: Any) -> Any:
    made = connect(Gmail, timeout=5)
    yield made
    await made.aclose()


@pytest.mark.parametrize(
    ("kind", "action", "arguments"),
    [
        (Gmail, "search", {"query": "\ud83d"}),
        (Gmail, "read", {"message": "\ud83d"}),
        (Gmail, "send", {"to": "ada@example.com", "subject": "x", "text": "\ud83d"}),
        (Gmail, "send", {"to": "ada@example.com", "subject": "\ud83d", "text": "x"}),
        (Gmail, "send", {"to": "\ud83d <ada@example.com>", "subject": "x"}),
        (Drive, "create", {"name": "x.txt", "content": "\ud83d"}),
        (Drive, "search", {"text": "\ud83d"}),
        (Calendar, "get", {"event": "\ud83d"}),
    ],
)
async def test_lone_surrogate_in_an_argument_is_refused(
    connect: Any, kind: Any, action: str, arguments: dict[str, Any]
) -> None:
    connection = connect(kind)
    with pytest.raises(ToolRefusedError, match="half of a character"):
        await getattr(connection, action)(**arguments)
    await connection.aclose()


@pytest.mark.parametrize(
    ("status", "reason"),
    [(429, "rateLimitExceeded"), (403, "userRateLimitExceeded"), (500, ""), (503, "backendError")],
)
async def test_transient_failure_is_retried(
    google: GoogleServer, gmail: Any, status: int, reason: str
) -> None:
    google.fail(LABELS, status, reason, times=3)
    assert await gmail.labels()
    assert google.calls(LABELS) == 4
    assert len(gmail.pauses) == 3
    assert gmail.pauses[0] < gmail.pauses[1] < gmail.pauses[2]


async def test_retry_waits_as_long_as_the_service_asks(google: GoogleServer, gmail: Any) -> None:
    google.fail(LABELS, 429, after=7)
    await gmail.labels()
    assert gmail.pauses == [7]
    google.fail(LABELS, 429, "rateLimitExceeded", after=3600)
    with pytest.raises(QuotaError, match="rateLimitExceeded"):
        await gmail.labels()
    assert gmail.pauses == [7]


@pytest.mark.parametrize("reason", ["dailyLimitExceeded", "quotaExceeded"])
async def test_exhausted_daily_quota_is_reported_at_once(
    google: GoogleServer, gmail: Any, reason: str
) -> None:
    google.fail(LABELS, 403, reason)
    with pytest.raises(QuotaError, match=reason) as caught:
        await gmail.labels()
    assert (caught.value.status, gmail.pauses) == (403, [])


async def test_disabled_api_is_reported(google: GoogleServer, gmail: Any) -> None:
    google.fail(LABELS, 403, "accessNotConfigured", message="Gmail API has not been used")
    with pytest.raises(GoogleError, match="has not been used") as caught:
        await gmail.labels()
    assert "switch the API on" in (caught.value.hint or "")


@pytest.mark.parametrize("after", [None, 0])
async def test_retries_of_rate_limits_end_after_a_minute(
    google: GoogleServer, gmail: Any, after: float | None
) -> None:
    google.fail("*", 429, "rateLimitExceeded", times=1000, after=after)
    with pytest.raises(QuotaError):
        await gmail.labels()
    assert google.calls(LABELS) < 12
    assert 60 < sum(gmail.pauses) <= 70  # quotas are of a minute
    assert max(gmail.pauses) < 45


async def test_hanging_server_times_out(google: GoogleServer, connect: Any) -> None:
    gmail = connect(Gmail, timeout=0.2)
    google.hang(LABELS, times=6)
    with pytest.raises(ConnectionUnavailableError, match=r"no answer within 0\.2 s"):
        await gmail.labels()
    assert await gmail.labels()
    await gmail.aclose()


async def test_unreachable_server_raises(connect: Any, google: GoogleServer) -> None:
    token = google.logins.token_for(USER, [])
    gmail = connect(Gmail, token=token, base_url="http://127.0.0.1:9")
    with pytest.raises(ConnectionUnavailableError, match=r"127\.0\.0\.1:9") as caught:
        await gmail.labels()
    assert token not in str(caught.value)
    await gmail.aclose()


async def test_reading_survives_a_lost_answer(google: GoogleServer, gmail: Any) -> None:
    google.lose(LABELS)
    assert await gmail.labels()


async def test_mail_with_a_lost_answer_is_sent_once(google: GoogleServer, gmail: Any) -> None:
    box = google.gmail.box("bob@example.com")
    google.lose(SEND, after=1)  # the upload is opened, and sent
    sent = await gmail.send("bob@example.com", "Once", "Only once.")
    assert sent["id"] in google.gmail.box(USER).mails
    assert len(box.mails) == 1


async def test_send_with_a_lost_answer_is_not_repeated(google: GoogleServer, gmail: Any) -> None:
    draft = await gmail.draft("Text", to="bob@example.com", subject="Draft")
    google.lose("gmail.users.drafts.send")
    with pytest.raises(LostAnswerError, match="may have been executed"):
        await gmail.send_draft(draft["id"])
    google.fail("gmail.users.drafts.send", 500)
    with pytest.raises(LostAnswerError, match="HTTP 500"):
        await gmail.send_draft(draft["id"])
    assert google.calls("gmail.users.drafts.send") == 2


async def test_oversized_answer_is_refused(google: GoogleServer, connect: Any) -> None:
    gmail = connect(Gmail, max_bytes=1000)
    message = google.gmail.deliver(USER, b"Subject: x\r\n\r\n" + b"x" * 5000)
    with pytest.raises(GoogleError, match="larger than 1,000 bytes"):
        await gmail.read(message.id)
    await gmail.aclose()


async def test_upload_addresses_are_not_logged(
    google: GoogleServer, gmail: Any, caplog: Any
) -> None:
    google.gmail.box("bob@example.com")
    with caplog.at_level(logging.INFO):
        await gmail.send("bob@example.com", "x", "x")
    assert "upload_id" not in caplog.text
    assert "ya29." not in caplog.text


async def test_interrupted_upload_continues_at_the_received_byte(
    google: GoogleServer, connect: Any
) -> None:
    gmail = connect(Gmail)
    content = b"To: bob@example.com\r\n\r\n" + b"x" * 1_000_000
    google.fail(SEND, 503, after_calls=1)
    google.lose(SEND, after=1)
    request = Request("send", "POST", "upload/gmail/v1/users/me/messages/send", body={})
    made = await upload(gmail.transport, request, content, "message/rfc822")
    assert google.gmail.box(USER).mails[made["id"]].raw.endswith(content[-100:])
    assert len(google.gmail.box(USER).mails) == 1
    await gmail.aclose()


async def test_upload_reports_an_answer_that_is_not_json(gmail: Any, monkeypatch: Any) -> None:
    async def answer(request: Request) -> Answer:
        return Answer(200, {"location": "https://www.googleapis.com/upload"}, b"<html>")

    monkeypatch.setattr(gmail.transport, "send_unchecked", answer)
    with pytest.raises(GoogleError, match="send: the answer is not JSON"):
        await upload(gmail.transport, Request("send", "POST", "upload"), b"x", "text/plain")


def test_deeply_nested_error_is_quoted() -> None:
    assert Problem(500, b"[" * 200_000).message.startswith("[[[")


async def test_minute_quota_is_waited_for_and_reported(
    google: GoogleServer, gmail: Any, caplog: Any
) -> None:
    google.fail(LABELS, 429, "rateLimitExceeded", after=55)
    assert await gmail.labels()
    assert gmail.pauses == [55]
    assert "a quota of Google is used up; waiting for 55 s" in caplog.text
    google.fail(LABELS, 429, "rateLimitExceeded", after=40, times=2)
    with pytest.raises(QuotaError, match="after waiting for 40 s"):
        await gmail.labels()
    assert gmail.pauses == [55, 40]


async def test_expired_token_is_renewed_during_a_search(google: GoogleServer, gmail: Any) -> None:
    for number in range(3):
        google.gmail.deliver(USER, f"Subject: {number}\r\n\r\nx".encode())
    list_messages = google.handlers["gmail.users.messages.list"]

    def list_and_expire(*arguments: Any, **options: Any) -> Any:
        google.handlers["gmail.users.messages.list"] = list_messages
        answer = list_messages(*arguments, **options)
        google.logins.expire_all()
        return answer

    google.handlers["gmail.users.messages.list"] = list_and_expire
    before = google.logins.refreshes
    assert len((await gmail.search())["messages"]) == 3
    assert google.logins.refreshes == before + 2  # the first token, and one in its place
    google.fail("gmail.users.messages.get", 401, "authError", times=100)
    with pytest.raises(LoginError):
        await gmail.search()


@pytest.mark.parametrize("status", [301, 302, 304, 307])
async def test_redirect_is_no_success(gmail: Any, monkeypatch: Any, status: int) -> None:
    async def redirect(request: Request) -> Answer:
        return Answer(status, {"location": "https://login.example/"}, b"")

    monkeypatch.setattr(gmail.transport, "send_unchecked", redirect)
    with pytest.raises(GoogleError, match=f"delete: HTTP {status}"):
        await gmail.transport.json(Request("delete", "DELETE", "x"))
    with pytest.raises(GoogleError, match=f"load: HTTP {status}"):
        await gmail.transport.send(Request("load", "GET", "x"))


@pytest.mark.parametrize(
    "address",
    [
        "https://upload.example/x",
        "http://www.googleapis.com/x",
        "https://x@www.googleapis.com/x",
        "https://googleapis.com.example/x",
        "http://[::1",
        "file:///etc/passwd",
    ],
)
async def test_upload_sends_no_token_to_another_server(
    gmail: Any, monkeypatch: Any, address: str
) -> None:
    sent: list[str] = []

    async def answer(request: Request) -> Answer:
        sent.append(request.url)
        return Answer(200, {"location": address}, b"{}")

    monkeypatch.setattr(gmail.transport, "send_unchecked", answer)
    with pytest.raises(GoogleError, match="send: the address for the upload is not one of Google"):
        await upload(gmail.transport, Request("send", "POST", "upload"), b"x", "text/plain")
    assert sent == ["upload"]


async def test_pages_without_end_are_not_read_forever(gmail: Any, monkeypatch: Any) -> None:
    tokens: list[Any] = []
    pages: list[dict[str, Any]] = []

    async def page(request: Request) -> dict[str, Any]:
        tokens.append(request.query["pageToken"])
        return pages[len(tokens) % len(pages)]

    async def items() -> list[Any]:
        tokens.clear()
        listing = Request("list", "GET", "x")
        return [item async for item in gmail.transport.pages(listing, "messages")]

    monkeypatch.setattr(gmail.transport, "json", page)
    pages = [{"messages": [{"id": "1"}], "nextPageToken": token} for token in "abc"]
    assert len(await items()) == 4  # "b", "c", "a", and "b" again
    pages = [{"nextPageToken": str(number)} for number in range(500)]
    with pytest.raises(GoogleError, match="more than 100 pages in a row are empty"):
        await items()
    assert len(tokens) == 101


@pytest.mark.parametrize("messages", [{"a": 1}, "abc", [1, None], 7])
async def test_page_that_is_not_a_list_of_objects_is_reported(
    gmail: Any, monkeypatch: Any, messages: Any
) -> None:
    async def page(request: Request) -> dict[str, Any]:
        return {"messages": messages}

    monkeypatch.setattr(gmail.transport, "json", page)
    with pytest.raises(GoogleError, match="search messages: the answer has no list of messages"):
        await gmail.search()


def test_reason_of_an_error_is_one_short_line() -> None:
    content = {"error": {"message": "m", "errors": [{"reason": "Q\n\t" + "z" * 5000}]}}
    assert Problem(403, json.dumps(content).encode()).reason == "Q " + "z" * 98


@pytest.mark.parametrize("key", ["", ".", ".."])
@pytest.mark.parametrize(
    ("kind", "action", "arguments"),
    [
        (Calendar, "delete", {"event": "{}"}),
        (Calendar, "delete", {"event": "x", "calendar": "{}"}),
        (Calendar, "update", {"event": "{}", "title": "x"}),
        (Calendar, "update", {"event": "{}", "calendar": "{}", "title": "x"}),
        (Gmail, "read", {"message": "{}"}),
        (Gmail, "thread", {"thread": "{}"}),
        (Docs, "read", {"document": "{}"}),
        (Sheets, "info", {"spreadsheet": "{}"}),
    ],
)
async def test_empty_or_dotted_id_is_refused(
    google: GoogleServer, connect: Any, kind: Any, action: str, arguments: Any, key: str
) -> None:
    connection = connect(kind)
    given = {name: text.format(key) for name, text in arguments.items()}
    with pytest.raises(ToolRefusedError):
        await getattr(connection, action)(**given)
    await connection.aclose()
    assert not [item for item in google.seen if item.method != "token"]


def test_missing_field_of_an_answer_is_an_error_of_google() -> None:
    answer = Answer(200, {}, b'{"messages": [{"id": "a"}, {}]}').json()
    assert answer["messages"][0]["id"] == "a"
    assert answer.get("labels") is None
    with pytest.raises(GoogleError, match="no field 'id'"):
        _ = answer["messages"][1]["id"]
