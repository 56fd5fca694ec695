"""Failures of Slack in words of one's own, and its objects, which may lack anything."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import aiohttp
from slack_sdk.errors import SlackClientError

from delf.errors import DelfError


class SlackUnavailableError(DelfError):
    """Slack could not be reached, or refused what the app wants."""

    code = "ERR-SLACK-001"


def fields_of(value: object) -> Mapping[str, Any]:
    """The fields of an object of Slack's; none of what is not an object."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


@contextmanager
def telling(what: str) -> Generator[None]:
    """Tell a failure of Slack's in words of one's own: its texts may hold what was sent."""
    try:
        yield
    except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError) as error:
        response: Any = getattr(error, "response", None)
        data = getattr(response, "data", None)
        code = cast("dict[str, Any]", data).get("error") if isinstance(data, dict) else None
        raise SlackUnavailableError(
            f"delf could not {what}: {code or type(error).__name__}",
            hint="look at token, scopes and channel of the app, and whether it is in the channel",
        ) from error
