"""Validation of calls that schedules repeat without a person, when a schedule is created."""

from __future__ import annotations

from collections.abc import Sequence

from delf.errors import ConfigurationError, ToolRefusedError
from delf.protocols.connection import ConnectionLike
from delf_engine.one_call import parse_call
from delf_engine.tolerance import validate_arguments
from delf_engine.toolset import load_toolset


async def check_watched_call(connections: Sequence[ConnectionLike], text: str) -> None:
    """Check that a schedule can repeat a call in order to find new items.

    Nobody is asked about the repeated calls. So the call must only read, and need no approval.

    Args:
        connections: The connections of the agent that makes the call.
        text: The call in script syntax.

    Raises:
        ConfigurationError: If the text is not a call, no connection has the action, the arguments
            are invalid, the action changes something, or its calls need approval.
        DelfError: If the actions of a connection cannot be listed.
    """
    action, arguments = parse_call(text)
    connection, _, method = action.partition(".")
    try:
        bound_action = (await load_toolset(connections)).find(connection, method)
        if bound_action.action.effect != "read":
            raise ConfigurationError(
                f"{action} changes something; only a call that reads can be watched"
            )
        if bound_action.asks:
            raise ConfigurationError(
                f"each call of {action} needs approval, and nobody is asked for a schedule",
                hint="confirm of its connection says which actions need approval",
            )
        arguments_by_name, _ = bound_action.bind((), arguments)
        validate_arguments(bound_action.action, arguments_by_name)
    except ToolRefusedError as error:
        raise ConfigurationError(f"{text[:80]!r} cannot be watched: {error.message}") from None
