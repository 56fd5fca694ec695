"""Many small requests in one: Google's ``multipart/mixed`` batches."""

from __future__ import annotations

import email
import email.policy
import itertools
import uuid
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from delf_google.errors import GoogleError
from delf_google.requests import Answer, Request
from delf_google.transport import Transport

MOST: Final = 50
_END: Final = "\r\n"


async def read_many(
    transport: Transport, path: str, requests: Sequence[Request]
) -> list[dict[str, Any] | None]:
    """The JSON answers of reading requests, in their order; None for what is not there (any more).

    Args:
        transport: Where they are sent.
        path: The service's address of batches.
        requests: Requests without a body.

    Raises:
        GoogleError: When one is refused for another reason than that it is not there.
    """
    found: list[dict[str, Any] | None] = []
    for start in range(0, len(requests), MOST):
        found += await _some(transport, path, requests[start : start + MOST])
    return found


async def _some(
    transport: Transport, path: str, requests: Sequence[Request]
) -> list[dict[str, Any] | None]:
    answers: dict[int, Answer] = {}
    renewed, waited = False, 0.0
    for attempt in itertools.count():
        waiting = [index for index in range(len(requests)) if index not in answers]
        got = await _send(transport, path, [requests[index] for index in waiting])
        waits: list[float] = []
        is_refused = False
        for index, answer in zip(waiting, got, strict=True):
            if answer.status == 401 and not renewed:
                is_refused = True
                continue
            wait = transport.wait_before_again(answer, requests[index], attempt, waited)
            is_last = answer.status >= 500 and attempt >= transport.settings.retries
            if wait is None or is_last:
                answers[index] = answer
            else:
                waits.append(wait)
        if is_refused:
            renewed = True
            await transport.renew()
        elif not waits:
            break
        if waits:
            waited += max(waits)
            await transport.sleep(max(waits))
    found: list[dict[str, Any] | None] = []
    for index, request in enumerate(requests):
        answer = answers[index]
        if answer.status in (404, 410):
            found.append(None)
        elif answer.status >= 400:
            raise transport.failure(answer, request)
        else:
            found.append(answer.json())
    return found


async def _send(transport: Transport, path: str, requests: Sequence[Request]) -> list[Answer]:
    boundary = f"batch_{uuid.uuid4().hex}"
    lines: list[str] = []
    for index, request in enumerate(requests):
        query = urlencode(request.pairs)
        lines += [f"--{boundary}", "Content-Type: application/http", f"Content-ID: <{index}>", ""]
        lines += [f"GET /{request.url}{'?' if query else ''}{query} HTTP/1.1", "", ""]
    lines += [f"--{boundary}--", ""]
    answer = await transport.send(
        Request(
            what=requests[0].what,
            method="POST",
            url=path,
            harmless=True,
            content=_END.join(lines).encode(),
            headers={"Content-Type": f"multipart/mixed; boundary={boundary}"},
        )
    )
    return _parts(answer, len(requests), transport.name)


def _parts(answer: Answer, count: int, name: str) -> list[Answer]:
    kind = answer.headers.get("content-type", "")
    head = f"Content-Type: {kind}\r\n\r\n".encode()
    message = email.message_from_bytes(head + answer.content, policy=email.policy.HTTP)
    found: dict[int, Answer] = {}
    for part in message.iter_parts() if message.is_multipart() else ():
        number = str(part.get("Content-ID", "")).strip("<>").removeprefix("response-")
        content: Any = part.get_payload(decode=True)
        lines, _, body = bytes(content or b"").replace(b"\r\n", b"\n").partition(b"\n\n")
        first, *rest = lines.decode("latin-1").split("\n")
        words = first.split(" ")
        if not number.isdigit() or len(words) < 2 or not words[1].isdigit():
            continue
        pairs = (line.partition(":") for line in rest)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        found[int(number)] = Answer(int(words[1]), headers, body)
    if set(found) != set(range(count)):
        raise GoogleError(f"{name}: the answer to a batch lacks {count - len(found)} of its parts")
    return [found[index] for index in range(count)]
