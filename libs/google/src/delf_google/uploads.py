"""Resumable uploads: what was sent stays sent, even if the process is killed in between."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from delf.errors import ConnectionUnavailableError
from delf.machine.own_files import write_private
from delf.network.retries import pause
from delf_google.errors import GoogleError, LostAnswerError
from delf_google.requests import Answer, Request
from delf_google.transport import Transport

_log = logging.getLogger(__name__)
_FRESH_SECONDS: Final = 6 * 86_400  # Google keeps an unfinished upload for a week
_RESUME: Final = 308


class UploadLog:
    """Addresses of unfinished uploads, so that another process can go on with them.

    Args:
        folder: Where they are kept; the user's state folder when omitted.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def _path(self, key: str) -> Path:
        if self._folder is None:
            from platformdirs import user_state_path

            self._folder = user_state_path("delf", appauthor=False) / "google-uploads"
        return self._folder / f"{key}.json"

    def find(self, key: str) -> str | None:
        """The address of an upload that was begun, if it may still be good."""
        path = self._path(key)
        try:
            if path.stat().st_mtime < time.time() - _FRESH_SECONDS:
                path.unlink()
                return None
            return str(json.loads(path.read_text(encoding="utf-8"))["address"])
        except (OSError, ValueError, KeyError):
            return None

    def begin(self, key: str, address: str) -> None:
        """Remember an upload. Without a place to write it goes on, and cannot be resumed."""
        try:
            write_private(self._path(key), json.dumps({"address": address}).encode())
        except OSError as error:
            _log.warning("an upload cannot be resumed if it is interrupted: %s", error.strerror)

    def end(self, key: str) -> None:
        """Forget an upload."""
        self._path(key).unlink(missing_ok=True)


class Uploader:
    """Uploads content in chunks.

    Args:
        transport: Where it is sent.
        log: Where unfinished uploads are remembered.
    """

    def __init__(self, transport: Transport, log: UploadLog | None = None) -> None:
        self._transport = transport
        self._log = log or UploadLog()
        self._active: set[str] = set()

    async def upload(
        self,
        request: Request,
        content: bytes,
        kind: str,
        *,
        resumable_as: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Upload content; what it becomes.

        An answer that was lost is asked for again, so nothing is made twice.

        Args:
            request: Opens the upload; its body is the metadata.
            content: What is uploaded.
            kind: Its media type.
            resumable_as: What tells this upload from others, for a process that comes after
                this one; None to begin again always.

        Raises:
            LostAnswerError: When it cannot be found out what happened to it.
            GoogleError: When the service refuses it.
        """
        key = None
        if resumable_as is not None:
            own = {**self._transport.settings.identity, "name": self._transport.name}
            key = await asyncio.to_thread(_key, own, resumable_as, content)
        if key is None or key in self._active:  # the same twice at once are two uploads
            return await self._upload(request, content, kind, None)
        self._active.add(key)
        try:
            return await self._upload(request, content, kind, key)
        finally:
            self._active.discard(key)

    async def _upload(
        self, request: Request, content: bytes, kind: str, key: str | None
    ) -> dict[str, Any]:
        address = await asyncio.to_thread(self._log.find, key) if key is not None else None
        position = 0
        if address is not None:
            state = await self._ask(request, address, len(content))
            if state.status < 300:
                return await self._end(key, state)
            if state.status == _RESUME:
                position = _received(state)
            else:
                address = None
        if address is None:
            address = await self._begin(request, content, kind)
            if key is not None:
                await asyncio.to_thread(self._log.begin, key, address)
        return await self._end(key, await self._send(request, address, content, position))

    async def _end(self, key: str | None, answer: Answer) -> dict[str, Any]:
        if key is not None:
            await asyncio.to_thread(self._log.end, key)
        return answer.json()

    async def _begin(self, request: Request, content: bytes, kind: str) -> str:
        opening = Request(
            what=request.what,
            method=request.method,
            url=request.url,
            query={**request.query, "uploadType": "resumable"},
            body=request.body if request.body is not None else {},
            harmless=True,  # nothing is made until the last chunk has arrived
            headers={
                "X-Upload-Content-Type": kind,
                "X-Upload-Content-Length": str(len(content)),
            },
        )
        answer = await self._transport.send(opening)
        address = answer.headers.get("location")
        if not address:
            raise GoogleError(f"{self._transport.name}: {request.what}: no place to upload to")
        return address

    async def _send(self, request: Request, address: str, content: bytes, position: int) -> Answer:
        step, size, failures = self._transport.settings.chunk_bytes, len(content), 0
        while True:
            chunk = content[position : position + step]
            span = f"{position}-{position + len(chunk) - 1}" if chunk else "*"
            # A chunk is sent again only from where the service says.
            doubt = False
            sending = replace(_put(request, address, chunk, f"bytes {span}/{size}"), once=True)
            try:
                answer = await self._transport.attempts(sending)
            except LostAnswerError:
                answer = None
            if answer is None or answer.status >= 500:
                failures += 1
                if failures > self._transport.settings.retries:
                    raise self._unknown(request)
                await self._transport.sleep(pause(failures - 1))
                doubt = position + len(chunk) == size
                answer = await self._ask(request, address, size)
            if answer.status >= 400:
                if doubt:  # with its last chunk an upload may be done, and its address gone
                    raise self._unknown(request)
                raise self._transport.failure(answer, request)
            if answer.status < 300:
                return answer
            following = _received(answer)
            failures = 0 if following > position else failures
            position = following

    async def _ask(self, request: Request, address: str, size: int) -> Answer:
        """Ask for the size of an upload's part that has arrived."""
        asking = replace(_put(request, address, b"", f"bytes */{size}"), harmless=True)
        try:
            return await self._transport.attempts(asking)
        except ConnectionUnavailableError:
            raise self._unknown(request) from None

    def _unknown(self, request: Request) -> LostAnswerError:
        return LostAnswerError(
            f"{self._transport.name}: {request.what}: it broke off, and may have been done; "
            "check before you repeat it"
        )


def _put(request: Request, address: str, chunk: bytes, span: str) -> Request:
    return Request(
        what=request.what,
        method="PUT",
        url=address,
        content=chunk,
        headers={"Content-Range": span},
    )


def _received(answer: Answer) -> int:
    span = answer.headers.get("range", "")
    _, _, last = span.partition("-")
    return int(last) + 1 if last.isdigit() else 0


def _key(own: Mapping[str, Any], told: Mapping[str, Any], content: bytes) -> str:
    digest = hashlib.sha256(json.dumps([own, told], sort_keys=True, default=str).encode())
    digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
