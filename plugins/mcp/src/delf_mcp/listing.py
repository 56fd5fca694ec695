"""Reading of a server's lists within limits and without invalid items."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import mcp_types as types
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from delf.errors import DelfError
from delf.tools.json_schema import clean
from delf.types import Effect
from delf_mcp.depth import LIST_METHODS, is_too_deep
from delf_mcp.limits import MAX_ITEMS, MAX_LIST_CHARACTERS, MAX_PAGES
from delf_schemas.effects import description_digest

_MAX_NAME_CHARACTERS: Final = 80
_MAX_REASON_CHARACTERS: Final = 200


class ListError(Exception):
    """A list could not be read completely.

    Args:
        why: The reason.
        hint: The suggested next step.
    """

    def __init__(self, why: str, hint: str | None = None) -> None:
        super().__init__(why)
        self.hint = hint


@dataclass(frozen=True)
class OmittedItem:
    """An item of a server's list that is left out because it is unusable.

    Args:
        kind: ``tools``, ``resources`` or ``resourceTemplates``.
        name: The item's name, or its number in the list.
        why: The fault of the item.
    """

    kind: str
    name: str
    why: str


Omitted = defaultdict[str, list[OmittedItem]]
"""The invalid items that were removed from a server's lists, by kind."""


class InvalidItemFilter:
    """Removes invalid items from the lists that one client receives.

    The library refuses a whole list if one item is invalid.

    Args:
        max_tools: The maximum number of tools to accept.
        omitted: Gets the removed items.
    """

    def __init__(self, max_tools: int, omitted: Omitted) -> None:
        self._max_tools = max_tools
        self._omitted = omitted
        self.version: str | None = None
        """The protocol version of the client; None before the version is negotiated."""

    def remove_invalid_items(self, message: Any) -> None:
        """Remove invalid items from the lists in a response, such as the list of tools."""
        response = message.message if isinstance(message, SessionMessage) else None
        # Before the protocol version is negotiated, servers send no lists.
        if self.version is None or not isinstance(response, types.JSONRPCResponse):
            return
        for kind, method in LIST_METHODS.items():
            items = response.result.get(kind)
            if isinstance(items, list):
                limit = self._max_tools if kind == "tools" else MAX_ITEMS
                # One item above the limit stays, so that whole_list() detects the excess.
                checked_items = cast("list[Any]", items)[: limit + 1]
                response.result[kind] = self._valid_items(
                    kind, method, response.result, checked_items
                )

    def _valid_items(
        self, kind: str, method: str, result: Mapping[str, Any], items: list[Any]
    ) -> list[Any]:
        """Return the valid items of a list, and record the invalid items as omitted."""
        is_invalid_without_items = self._fault(method, {**result, kind: []}) is not None
        # The client library will refuse the result, whatever its items are.
        if is_invalid_without_items:
            return items
        valid_items: list[Any] = []
        for index, item in enumerate(items):
            why = self._fault_of_item(kind, method, result, item)
            if why is None:
                valid_items.append(item)
                continue
            name = cast("dict[str, Any]", item).get("name") if isinstance(item, dict) else None
            item_name = displayable(name) or f"number {index + 1}"
            self._omitted[kind].append(OmittedItem(kind, item_name, why))
        return valid_items

    def _fault_of_item(
        self, kind: str, method: str, result: Mapping[str, Any], item: Any
    ) -> str | None:
        """Return the fault of an item of a list; None if the item is valid.

        Args:
            kind: The key of the list in the result, such as ``tools``.
            method: The method of the protocol that returns the list, such as ``tools/list``.
            result: The result with the whole list.
            item: The item.
        """
        if is_too_deep(item):
            return "it is nested too deeply"
        result_with_only_item = {**result, kind: [item]}
        why = self._fault(method, result_with_only_item)
        if why is None and kind == "tools" and self.version in MODERN_PROTOCOL_VERSIONS:
            return find_invalid_x_mcp_header(item["inputSchema"])
        return why

    def _fault(self, method: str, result: Mapping[str, Any]) -> str | None:
        """Return the first error in the answer of a list method; None if the answer is valid.

        The error begins with the path of the invalid value within its item of the list.
        """
        try:
            validate_server_result(method, self.version or "", result)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            path_in_item = first["loc"][2:]  # without the list's key and the item's index
            path = ".".join(map(str, path_in_item))
            text = f"{path}: {first['msg']}" if path else first["msg"]
            return clean(text, _MAX_REASON_CHARACTERS)
        except KeyError:  # this version of the protocol does not have the method
            return None
        return None


async def whole_list(
    ask: Callable[..., Awaitable[Any]],
    attribute: str,
    max_items: int,
    hint: str | None = None,
    **options: Any,
) -> list[Any]:
    """Return the items of all pages of a list.

    Args:
        ask: Returns the page that begins at ``cursor``.
        attribute: The name of the attribute that holds the items of a page, such as ``resources``.
        max_items: The maximum number of items.
        hint: The hint of the error for too many items.
        options: Further keyword arguments for ``ask``.

    Raises:
        ListError: If the list exceeds a limit, or its pages repeat.
    """
    all_items: list[Any] = []
    cursors: set[str | None] = set()
    cursor: str | None = None
    size = 0
    while cursor not in cursors:  # a repeated cursor would lead to the same page again
        cursors.add(cursor)
        page = await ask(cursor=cursor, **options)
        all_items += getattr(page, attribute)
        size += len(page.model_dump_json())
        if len(all_items) > max_items:
            raise ListError(f"it has more than {max_items:,} entries", hint)
        if size > MAX_LIST_CHARACTERS:
            raise ListError(f"it has more than {MAX_LIST_CHARACTERS:,} characters")
        if len(cursors) > MAX_PAGES:
            raise ListError(f"it has more than {MAX_PAGES:,} pages")
        cursor = page.next_cursor
        if not cursor:
            return all_items
    raise ListError("its pages repeat: a page refers to an earlier page")


def digest_of(tool: types.Tool) -> str:
    """Return a digest of a tool's name, title, description and schemas."""
    parts = [tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema]
    return description_digest(parts)


def deciding_selectors(names: Collection[str], effects: Collection[str]) -> list[str]:
    """Return the keys of the setting ``effects`` that decide a tool's effect.

    An exact name takes precedence over patterns.

    Args:
        names: The tool's names at the server and in scripts.
        effects: The names and patterns of the setting.
    """
    if exact_names := [each for each in effects if each in names]:
        return exact_names
    return [each for each in effects if any(fnmatchcase(name, each) for name in names)]


def claimed_effect_of(tool: types.Tool) -> Effect:
    """Return the effect that a server claims for a tool.

    The user sees this effect, but approvals depend on the setting ``effects`` alone.
    """
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return "read"
    if hints is not None and hints.destructive_hint is False:
        return "write"
    return "irreversible"


def displayable(name: object) -> str:
    """Return a name from a server without invisible characters, and at most 80 characters long."""
    return clean(name, _MAX_NAME_CHARACTERS)


def reason(error: DelfError) -> str:
    """Return the message of an error as one line of at most 200 characters."""
    return clean(error.message, _MAX_REASON_CHARACTERS)
