"""Failures of Slack in delf's words, and access to its untyped objects."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import aiohttp
from slack_sdk.errors import SlackClientError

from delf.errors import DelfError


class SlackUnavailableError(DelfError):
    """Slack could not be reached, or refused a request."""

    code = "ERR-SLACK-001"


def fields_of(value: object) -> Mapping[str, Any]:
    """Return the fields of a Slack object; empty for other values."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


@contextmanager
def convert_failures(action: str) -> Generator[None]:
    """Raise ``SlackUnavailableError`` if the block fails to reach Slack or Slack refuses a request.

    The error leaves out Slack's own text, which may contain sent data.

    Args:
        action: The purpose of the block, as a verb with its object: ``ask in Slack``.
    """
    try:
        yield
    except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as error:
        response: Any = getattr(error, "response", None)
        data = getattr(response, "data", None)
        code = cast("dict[str, Any]", data).get("error") if isinstance(data, dict) else None
        raise SlackUnavailableError(
            f"delf could not {action}: {code or type(error).__name__}",
            hint="look at token, scopes and channel of the app, and whether it is in the channel",
        ) from error
