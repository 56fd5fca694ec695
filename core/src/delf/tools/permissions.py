"""The semantics of ``allow`` and ``confirm``, the two permissions of each connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delf.errors import (
    AgentConfirmationError,
    ConnectionConfigurationError,
    ToolDefinitionError,
    did_you_mean,
)
from delf.tools.action import Action, permission_names
from delf.types import Permission


def check_permission(value: Any, option: str, place: str) -> Permission:
    """Normalise and validate a value of ``allow`` or ``confirm``.

    Args:
        value: None, a bool, the name of an action or group, or a collection of such names.
        option: ``allow`` or ``confirm``.
        place: The name of the connection, for error messages.

    Raises:
        ConnectionConfigurationError: For an invalid ``allow``.
        AgentConfirmationError: For an invalid ``confirm``.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return (value,)
    if isinstance(value, (list, tuple, set, frozenset)):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        if all(isinstance(item, str) for item in items):
            has_order = isinstance(value, (list, tuple))
            return tuple(items if has_order else sorted(items))
    kind = AgentConfirmationError if option == "confirm" else ConnectionConfigurationError
    raise kind(
        f"{option} of {place!r} is {value!r}",
        hint="it can be true, false, an action's name or a list of names",
    )


def check_groups(actions: Sequence[Action], place: str) -> None:
    """Raise for a permission group that has the same name as an action.

    A name in ``allow`` or ``confirm`` must be either an action or a group: otherwise
    ``allow="send"`` would allow the action and also everything in the group.

    Args:
        actions: All actions of a connection.
        place: The connection, for messages.

    Raises:
        ToolDefinitionError: If a group has the name of an action.
    """
    names = {action.name for action in actions}
    for action in actions:
        if action.permission != action.name and action.permission in names:
            group = action.permission
            raise ToolDefinitionError(
                f"connection {place!r}: {action.name!r} is in the group {group!r}, and an action "
                f"has that name, too: allow = [{group!r}] would allow both",
                hint=f"give the group in @action({group!r}, …) a name that no action has",
            )


def check_permission_names(
    value: Permission, option: str, place: str, actions: Sequence[Action]
) -> None:
    """Raise if ``allow`` or ``confirm`` has a name that is neither an action's nor a group's.

    Raises:
        ConnectionConfigurationError: For an unknown name in ``allow``.
        AgentConfirmationError: For an unknown name in ``confirm``.
    """
    if value is None or isinstance(value, bool):
        return
    valid_names = permission_names(actions)
    names = (value,) if isinstance(value, str) else value
    for name in names:
        if name not in valid_names:
            kind = AgentConfirmationError if option == "confirm" else ConnectionConfigurationError
            raise kind(
                f"{option} of {place!r} names {name!r}, which is not one of its actions"
                f"{did_you_mean(name, valid_names)}",
                hint=f"its actions: {', '.join(valid_names)}",
            )


def is_allowed(allow: Permission, action: Action) -> bool:
    """Return True if ``allow`` permits an action; None and True permit all, False none."""
    if allow is None:
        return True
    if isinstance(allow, bool):
        return allow
    return _matches_name(allow, action)


def needs_confirmation(confirm: Permission, action: Action) -> bool:
    """Return True if ``confirm`` requires approval for an action.

    Args:
        confirm: The actions that require approval: all actions whose effect is not ``read`` (None),
            all actions (True), no action (False), or the actions and groups with these names.
        action: The action.
    """
    if confirm is None:
        return action.effect != "read"
    if isinstance(confirm, bool):
        return confirm
    return _matches_name(confirm, action)


def _matches_name(names: str | Sequence[str], action: Action) -> bool:
    name_list = (names,) if isinstance(names, str) else names
    return action.permission in name_list or action.name in name_list
