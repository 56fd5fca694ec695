"""Signatures of webhooks: those of https://www.standardwebhooks.com, and GitHub's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from delf_serve.problems import ProblemError

_MAX_OFF: Final = 300.0
"""Seconds by which the time of a message may differ, as Standard Webhooks advises."""
_LONGEST_ID: Final = 200


@dataclass(frozen=True)
class Delivery:
    """A message with a valid signature.

    Args:
        name: The id of the message, the same for each try.
    """

    name: str


def signature(secret: str, name: str, at: int, body: bytes) -> dict[str, str]:
    """Return the headers by which a receiver verifies a message and its age.

    Implements https://www.standardwebhooks.com, for which libraries exist.

    Args:
        secret: Any text, or ``whsec_`` and base64.
        name: The message id; the same for each attempt.
        at: Unix time in seconds.
        body: The body.
    """
    signed = hmac.digest(_key(secret), f"{name}.{at}.".encode() + body, hashlib.sha256)
    return {
        "webhook-id": name,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }


def verify(secret: str, headers: Mapping[str, str], body: bytes) -> Delivery:
    """Verify a message by its headers: of Standard Webhooks, or ``X-Hub-Signature-256``.

    Args:
        secret: Any text, or ``whsec_`` and base64.
        headers: The headers of the request, by their names in lower case.
        body: The body as it was sent.

    Raises:
        ProblemError: If the signature is missing or wrong, or the message too old.
    """
    if "webhook-signature" in headers:
        name, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not at.isdecimal() or not at.isascii() or abs(time.time() - int(at[:15])) > _MAX_OFF:
            raise _refused("webhook-timestamp is missing, or more than five minutes away")
        expected = signature(secret, name, int(at), body)["webhook-signature"]
        # The header has several signatures while a sender changes its secret.
        signatures = headers["webhook-signature"].split(" ")[:10]
    elif "x-hub-signature-256" in headers:
        # GitHub does not sign its id, so a replayed message could have another id.
        name = hashlib.sha256(body).hexdigest()
        expected = f"sha256={hmac.digest(secret.encode(), body, hashlib.sha256).hex()}"
        signatures = [headers["x-hub-signature-256"]]
    else:
        raise _refused("the signature is missing")
    if not any(hmac.compare_digest(text.encode(), expected.encode()) for text in signatures):
        raise _refused("the signature is wrong")
    if not 0 < len(name) <= _LONGEST_ID:
        raise ProblemError(422, f"the id of the message has 1 to {_LONGEST_ID} characters")
    return Delivery(name)


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
