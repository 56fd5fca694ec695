"""Resumable uploads: Google reports how many bytes have arrived."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delf.errors import ConnectionUnavailableError
from delf.network.retries import pause
from delf.values.numbers import parse_count
from delf_google.errors import GoogleError, LostAnswerError
from delf_google.requests import Answer, Request
from delf_google.transport import RETRIES, Transport


async def upload(
    transport: Transport, request: Request, content: bytes, kind: str
) -> dict[str, Any]:
    """Upload a file in a resumable upload; return Google's description of the file.

    A retry continues the upload, and does not create a second file.

    Args:
        transport: The transport.
        request: The request that opens the upload; its JSON body is the file's metadata.
        content: The file's bytes.
        kind: The media type.

    Raises:
        LostAnswerError: If it stays unknown whether the upload succeeded.
        GoogleError: If the service refuses the upload.
    """
    address = await _begin(transport, request, content, kind)
    position = 0  # the number of bytes that Google has received
    for attempt in range(RETRIES + 1):
        answer = await _send_rest(transport, request, address, content, position)
        if answer is None:  # ask how many bytes have arrived
            await transport.sleep(pause(attempt))
            answer = await _ask_status(transport, request, address, len(content))
        if answer is None:  # the status is unknown, too
            break
        if answer.status < 300:
            return _file_in(answer, f"{transport.name}: {request.what}")
        position = _received_bytes(answer)  # status 308: Google waits for more bytes
    raise LostAnswerError(
        f"{transport.name}: {request.what}: the upload broke off, and may have been completed; "
        "check before you repeat it"
    )


def _file_in(answer: Answer, subject: str) -> dict[str, Any]:
    """Return the description of the uploaded file in Google's last answer."""
    try:
        return answer.json()
    except (ValueError, RecursionError):
        raise GoogleError(f"{subject}: the answer is not JSON") from None


async def _send_rest(
    transport: Transport, request: Request, address: str, content: bytes, position: int
) -> Answer | None:
    """Send the bytes from a position on, and return Google's answer.

    Return None if it is unknown how many bytes arrived.
    """
    size = len(content)
    # With no byte left to send, as for an empty file, "*" asks Google for the result.
    byte_range = f"{position}-{size - 1}" if position < size else "*"
    upload_request = _put_request(
        request, address, content[position:], f"bytes {byte_range}/{size}"
    )
    try:
        # Some bytes may have arrived when the response is lost, so the transport must not retry.
        answer = await transport.send_unchecked(replace(upload_request, send_once=True))
    except LostAnswerError:
        return None
    if 400 <= answer.status < 500:
        raise transport.failure(answer, request)
    return None if answer.status >= 500 else answer


async def _ask_status(
    transport: Transport, request: Request, address: str, size: int
) -> Answer | None:
    """Ask Google how much of an upload has arrived; return None if Google does not say.

    Args:
        transport: The transport.
        request: The request that opened the upload.
        address: The URL of the upload.
        size: The size of the file in bytes.
    """
    put_request = _put_request(request, address, b"", f"bytes */{size}")
    status_request = replace(put_request, read_only=True)  # without content, it changes nothing
    try:
        answer = await transport.send_unchecked(status_request)
    except ConnectionUnavailableError:
        return None
    # The URL of a finished upload may no longer exist.
    return None if answer.status >= 400 else answer


async def _begin(transport: Transport, request: Request, content: bytes, kind: str) -> str:
    """Open a resumable upload; return the URL to which the bytes are sent."""
    upload_headers = {"X-Upload-Content-Type": kind, "X-Upload-Content-Length": str(len(content))}
    opening = replace(
        request,
        query={**request.query, "uploadType": "resumable"},
        body=request.body if request.body is not None else {},
        read_only=True,  # creates nothing before all bytes arrived
        headers=upload_headers,
    )
    address = (await transport.send(opening)).headers.get("location")
    if not address:
        raise GoogleError(
            f"{transport.name}: {request.what}: Google gave no address for the upload"
        )
    if not transport.may_send_token_to(address):
        raise GoogleError(
            f"{transport.name}: {request.what}: the address for the upload is not one of Google"
        )
    return address


def _put_request(request: Request, address: str, content: bytes, byte_range: str) -> Request:
    headers = {"Content-Range": byte_range}
    return Request(request.what, "PUT", address, content=content, headers=headers)


def _received_bytes(answer: Answer) -> int:
    """Return the number of bytes that Google has, from a header such as ``Range: bytes=0-42``."""
    _, _, last = answer.headers.get("range", "").partition("-")
    last_byte = parse_count(last)
    return 0 if last_byte is None else last_byte + 1
