"""Answers of an API: results for scripts, and errors with advice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from delf.network.charsets import codec_of, decode_charset
from delf.notes import note
from delf.tools.json_schema import clean
from delf.values.json_reader import JSONReader
from delf_openapi.bodies import kind_of
from delf_openapi.failures import APIError, GatewayError
from delf_openapi.requests import Request

_ERROR_CHARS: Final = 1500
CHECK_HINT: Final = "check before you repeat it"
_GATEWAY_STATUSES: Final = frozenset({502, 504})
_HIDDEN_HEADERS: Final = frozenset({"set-cookie", "www-authenticate", "authorization"})


class Answer:
    """A response whose body has been read.

    Args:
        status: The HTTP status.
        reason: The reason phrase of the status.
        headers: A mapping from lower-case header name to value.
        content: The body.
        replaces_write: Whether this is the answer to a GET to which the service redirected a write.
            The service has then received the write, and only the GET can have failed.
    """

    __slots__ = ("content", "headers", "reason", "replaces_write", "status")

    def __init__(
        self,
        status: int,
        reason: str,
        headers: Mapping[str, str],
        content: bytes,
        *,
        replaces_write: bool,
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = {k.lower(): v for k, v in headers.items()}
        self.content = content
        self.replaces_write = replaces_write

    @property
    def media(self) -> str:
        """The media type of the body, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def body(self) -> Any:
        """Return JSON as data, text as ``str``, other content as bytes; None for an empty body."""
        if not self.content:
            return None
        media = self.media
        if not media or kind_of(media) == "json":
            try:
                return self._json()
            except (ValueError, RecursionError) as error:
                if not media:  # the content type is unknown
                    return self.content
                note(
                    f"the answer is declared as JSON, and is not JSON ({error}); the script gets "
                    "its text"
                )
                return self._text()
        if kind_of(media) in ("text", "form"):
            return self._text()
        return self.content

    def _json(self) -> Any:
        """Parse the content as JSON.

        The first bytes show whether the encoding is UTF-8, UTF-16 or UTF-32. If the content is not
        valid in this encoding, the charset that the headers declare is used.
        """
        reader = JSONReader("the answer")
        try:
            text = self.content.decode(json.detect_encoding(self.content))
            value = reader.value(text.removeprefix("\ufeff"))
        except ValueError:
            # The detected encoding failed, or the text is not JSON: try the declared charset.
            value = reader.value(self._text().removeprefix("\ufeff"))
        reader.add_notes()  # about repeated keys and similar faults
        return value

    def _text(self) -> str:
        label = self.headers.get("content-type", "").lower().partition("charset=")[2]
        charset = label.partition(";")[0].strip(" \"'")
        text = decode_charset(self.content, charset)
        if text is not None:
            return text
        codec = codec_of(charset) or "utf-8"
        note(f"the answer has bytes that are not {codec.upper()}: each was read as \ufffd")
        return self.content.decode(codec, "replace")

    def as_dict(self, body: Any) -> dict[str, Any]:
        """Return status, headers and body as a dict, for scripts that need headers."""
        headers = {k: v for k, v in self.headers.items() if k not in _HIDDEN_HEADERS}
        return {"status": self.status, "headers": headers, "body": body}


def failure(answer: Answer, request: Request) -> APIError:
    """Return the error for a response with an error status."""
    text = f"{request.label} answered {answer.status} {clean(answer.reason, 60)}".rstrip()
    message = _body_text(answer, request)
    if message:
        text += f": {message}"
    hint: str | None = None
    if answer.status == 401 and request.unmet_schemes:
        hint = f"nothing is set for the security scheme {' or '.join(request.unmet_schemes)}"
    headers = {k: v for k, v in answer.headers.items() if k not in _HIDDEN_HEADERS}
    # A gateway may have passed the request on before it failed.
    may_be_done = answer.status in _GATEWAY_STATUSES or answer.replaces_write
    if may_be_done and not request.is_repeatable:
        text += f". The {request.method} may have been done"
        return GatewayError(text, status=answer.status, headers=headers, hint=CHECK_HINT)
    return APIError(text, status=answer.status, headers=headers, hint=hint)


def _body_text(answer: Answer, request: Request) -> str:
    """Return the body for an error message: shortened, and without the request's credentials."""
    body = answer.body()
    if body is None or body == "":
        return ""
    if isinstance(body, bytes):
        return f"{len(body):,} bytes of {clean(answer.media, 60) or 'an unknown type'}"
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    # Redact before truncating: a part of a secret would not be found.
    return clean(scrub(text, request), _ERROR_CHARS)


def scrub(text: str, request: Request) -> str:
    """Redact a request's credentials in a text, because some services repeat them in errors."""
    # ``request.query`` has only the parameters with credentials.
    query_values = [pair.partition("=")[2] for pair in request.query.split("&")]
    for value in [*request.secret_headers.values(), *query_values]:
        # A service may repeat only the token of ``Bearer TOKEN``.
        for part in {value, value.partition(" ")[2]}:
            if len(part) >= 4:  # shorter texts occur in ordinary words
                text = text.replace(part, "•••")
    return text
