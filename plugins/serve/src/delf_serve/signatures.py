"""Signatures of webhooks: those of https://www.standardwebhooks.com, and GitHub's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Final

from delf.values.numbers import parse_count
from delf_serve.problems import ProblemError

# The maximum age of a message in seconds, as Standard Webhooks advises.
_MAX_AGE_SECONDS: Final = 300.0
_MAX_ID_CHARACTERS: Final = 200


def signature(secret: str, name: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers with which a receiver verifies a message and its age.

    Implements https://www.standardwebhooks.com, for which libraries exist.

    Args:
        secret: Any text, or ``whsec_`` and base64.
        name: The message id, which is the same for each attempt to deliver the message.
        at: The Unix time in seconds.
        body: The body.
    """
    signed = hmac.digest(_key(secret), f"{name}.{at}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> str:
    """Verify the signature of a message, and return the message's id.

    The id stays the same if the sender repeats the message.

    The headers of Standard Webhooks and GitHub's ``X-Hub-Signature-256`` are supported.

    Args:
        secret: Any text, or ``whsec_`` and base64.
        headers: The headers of the request, by name in lower case.
        body: The unparsed body.

    Raises:
        ProblemError: If the signature is missing or wrong, or the message is too old.
    """
    if "webhook-signature" in headers:
        message_id = headers.get("webhook-id", "")
        sent_at = parse_count(headers.get("webhook-timestamp", ""))
        if sent_at is None or abs(time.time() - sent_at) > _MAX_AGE_SECONDS:
            raise _refused("webhook-timestamp is missing, or more than five minutes away")
        expected = signature(secret, message_id, sent_at, body)["webhook-signature"]
        # The header has several signatures while a sender changes its secret.
        signatures = headers["webhook-signature"].split(" ")[:10]
    elif "x-hub-signature-256" in headers:
        # GitHub does not sign its id, so a replayed message could have another id.
        message_id = hashlib.sha256(body).hexdigest()
        signed = hmac.digest(secret.encode(), body, hashlib.sha256)
        expected = f"sha256={signed.hex()}"
        signatures = [headers["x-hub-signature-256"]]
    else:
        raise _refused("the signature is missing")
    if not any(hmac.compare_digest(text.encode(), expected.encode()) for text in signatures):
        raise _refused("the signature is wrong, or there is no such hook")
    if not 0 < len(message_id) <= _MAX_ID_CHARACTERS:
        raise ProblemError(422, f"the id of the message has 1 to {_MAX_ID_CHARACTERS} characters")
    return message_id


def _key(secret: str) -> bytes:
    coded = secret.removeprefix("whsec_")
    return secret.encode() if coded == secret else base64.b64decode(coded)


def _refused(reason: str) -> ProblemError:
    return ProblemError(
        401,
        reason,
        "send webhook-id, webhook-timestamp and webhook-signature as "
        "https://www.standardwebhooks.com says, or X-Hub-Signature-256 as GitHub does",
    )
