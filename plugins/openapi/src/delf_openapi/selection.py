"""The choice of operations for actions: by name, operationId, tag, path or pattern."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from delf.errors import AgentConfirmationError, ConnectionConfigurationError, did_you_mean
from delf.tools.resources import has_change_verb, has_read_verb
from delf.types import Permission
from delf_openapi.operations import Endpoint

_MAX_LISTED: Final = 30


def choose(
    endpoints: Sequence[Endpoint], selectors: Sequence[str], setting: str, connection_name: str
) -> list[Endpoint]:
    """Return the operations that selectors match, in the order of the specification.

    A selector is one of these:

    - the name of an action, or an operationId
    - a tag (``pets``); ``tag:pets`` if ``pets`` or ``Pets`` is also a name or an operationId
    - a pattern of names (``repos_*``), or of paths (``/repos/*``, ``GET /repos/*``)

    Args:
        endpoints: All operations.
        selectors: The selectors.
        setting: The setting with the selectors: ``allow``, ``confirm`` or ``effects``.
        connection_name: The connection's name, for messages.

    Raises:
        ConnectionConfigurationError: If a selector of ``allow`` or ``effects`` matches nothing.
        AgentConfirmationError: If a selector of ``confirm`` matches nothing.
    """
    chosen: dict[str, None] = {}
    matcher = _OperationMatcher(endpoints)
    for selector in selectors:
        names = [*matcher.find(selector)]
        if setting == "confirm":
            # ``pets`` may be both a name and a tag: ask for approval in either case.
            names += matcher.tagged(selector)
        if not names:
            raise _unknown_selector_error(selector, endpoints, setting, connection_name)
        chosen.update(dict.fromkeys(names))
    return [endpoint for endpoint in endpoints if endpoint.name in chosen]


class _OperationMatcher:
    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._names = {endpoint.name for endpoint in endpoints}
        self._ids: dict[str, list[str]] = {}
        self._tags: dict[str, list[str]] = {}
        for endpoint in endpoints:
            if endpoint.operation_id:
                self._ids.setdefault(endpoint.operation_id, []).append(endpoint.name)
            for tag in endpoint.tags:
                self._tags.setdefault(tag.lower(), []).append(endpoint.name)

    def find(self, selector: str) -> Iterable[str]:
        """Return the names of the operations selected by a name, an id, a tag or a pattern."""
        if selector in self._names:
            return [selector]
        if selector in self._ids:
            return self._ids[selector]
        lower_case_names = {name.lower() for name in (*self._names, *self._ids)}
        is_name_in_wrong_case = selector.strip().lower() in lower_case_names
        # A name or id in the wrong letter case is a typing error. Such a selector must not select
        # the operations with a tag, even if a tag has the same letters.
        tagged_names = () if is_name_in_wrong_case else self.tagged(selector)
        return tagged_names or self._match_pattern(selector)

    def tagged(self, selector: str) -> Sequence[str]:
        """Return the names of the operations with a tag; ``tag:`` before the tag is optional."""
        return self._tags.get(selector.removeprefix("tag:").strip().lower(), ())

    def _match_pattern(self, selector: str) -> list[str]:
        """Return the names of the operations that a pattern matches.

        A pattern matches names (``list_*``) or paths (``/pets/*``, ``GET /pets/*``).
        """
        method_text, _, path = selector.rpartition(" ")
        if path.startswith("/") or path == "*":
            # A star crosses slashes; braces and brackets of a template are plain text.
            pattern = re.compile(".*".join(map(re.escape, path.split("*"))), re.DOTALL)
            # A selector may name several methods, as in ``GET|POST /pets/*``.
            methods = set(re.split(r"[|,\s]+", method_text.upper())) - {""}
            endpoints = self._endpoints
            if methods:
                endpoints = [each for each in endpoints if each.method in methods]
            return [each.name for each in endpoints if pattern.fullmatch(each.path)]
        if "*" in selector or "?" in selector:
            names = [endpoint.name for endpoint in self._endpoints]
            return [name for name in names if fnmatch.fnmatchcase(name, selector)]
        return []


def _unknown_selector_error(
    selector: str, endpoints: Sequence[Endpoint], setting: str, connection_name: str
) -> ConnectionConfigurationError | AgentConfirmationError:
    """Return the error for a selector that matches nothing, with similar selectors."""
    error_type = AgentConfirmationError if setting == "confirm" else ConnectionConfigurationError
    names = [endpoint.name for endpoint in endpoints]
    tags = sorted({tag for endpoint in endpoints for tag in endpoint.tags})
    ids = [endpoint.operation_id for endpoint in endpoints if endpoint.operation_id]
    listed = ", ".join(names[:_MAX_LISTED])
    if len(names) > _MAX_LISTED:
        listed += ", …"
    tagged = f"; its tags: {', '.join(tags[:_MAX_LISTED])}" if tags else ""
    return error_type(
        f"{setting} of {connection_name!r} names {selector!r}, which is not an "
        "operation, tag or pattern of it"
        f"{did_you_mean(selector, [*names, *tags, *ids])}",
        hint=f"its actions: {listed}{tagged}",
    )


def selectors_of(value: Permission) -> tuple[str, ...] | None:
    """Return the selectors in a value of ``allow`` or ``confirm``; None for a bool or None."""
    if value is None or isinstance(value, bool):
        return None
    return (value,) if isinstance(value, str) else tuple(value)


def resolved_confirm(
    value: Permission,
    endpoints: Sequence[Endpoint],
    actions: Mapping[str, object],
    connection_name: str,
) -> Permission:
    """Replace the selectors in ``confirm`` by the names of the actions that they match.

    Args:
        value: The value of ``confirm``; a value without selectors is returned unchanged.
        endpoints: The endpoints of all operations.
        actions: A mapping whose keys are the names of the operations that became actions.
        connection_name: The name of the connection, for messages.
    """
    selectors = selectors_of(value)
    if selectors is None:
        return value
    matching = choose(endpoints, selectors, "confirm", connection_name)
    return tuple(endpoint.name for endpoint in matching if endpoint.name in actions)


def only_reads(name: str, path: str) -> bool:
    """Return whether an operation only reads, judged by its name or the end of its path.

    Args:
        name: The action's name.
        path: The path template, such as ``/flow_runs/filter``.
    """
    if has_read_verb(name):
        return True
    last_segment = path.rstrip("/").rpartition("/")[2]
    has_placeholder = "{" in last_segment
    return not has_placeholder and has_read_verb(last_segment) and not has_change_verb(name)


def deciding_selectors(
    selectors: Iterable[str], endpoints: Sequence[Endpoint], where: str
) -> dict[str, list[str]]:
    """Return the selectors that decide the effect of each action, by the action's name.

    Selectors that are the name or operationId of an action override tags and patterns.

    Args:
        selectors: The keys of the setting ``effects``, written as for ``allow``.
        endpoints: All operations.
        where: The name of the connection, for messages.

    Raises:
        ConnectionConfigurationError: If a selector matches nothing.
    """
    by_name: dict[str, list[str]] = {}
    by_pattern: dict[str, list[str]] = {}
    for selector in selectors:
        for endpoint in choose(endpoints, (selector,), "effects", where):
            is_name = selector in (endpoint.name, endpoint.operation_id)
            selectors_by_action = by_name if is_name else by_pattern
            selectors_by_action.setdefault(endpoint.name, []).append(selector)
    return {**by_pattern, **by_name}
