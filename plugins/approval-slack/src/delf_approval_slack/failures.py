"""Failures of Slack in delf's words, and access to its untyped objects."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import aiohttp
from slack_sdk.errors import SlackClientError

from delf.errors import DelfError


class SlackUnavailableError(DelfError):
    """Slack is not reachable, or refused a request."""

    code = "ERR-SLACK-001"


def fields_of(value: object) -> Mapping[str, Any]:
    """Return a JSON object of Slack as a mapping; empty for other values."""
    if isinstance(value, Mapping):
        return cast("Mapping[str, Any]", value)
    return {}


def code_of(error: Exception) -> str | None:
    """Return Slack's code of a failure, such as ``channel_not_found``; None if Slack gave none."""
    response: Any = getattr(error, "response", None)
    code = fields_of(getattr(response, "data", None)).get("error")
    return None if code is None else str(code)


@contextmanager
def convert_failures(action: str) -> Generator[None]:
    """Convert Slack's exceptions in the block to ``SlackUnavailableError``.

    The error has Slack's error code but not Slack's text, which may contain sent data.

    Args:
        action: The purpose of the block for messages, such as ``ask in Slack``.
    """
    try:
        yield
    except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as error:
        raise SlackUnavailableError(
            f"delf could not {action}: {code_of(error) or type(error).__name__}",
            hint="look at token, scopes and channel of the app, and whether it is in the channel",
        ) from error
