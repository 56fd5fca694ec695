"""The setting ``effects``, applied to the operations of a specification."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from delf.tools.action import strictest
from delf.types import Effect
from delf_openapi.digests import OperationDigests
from delf_openapi.selection import deciding_selectors
from delf_openapi.settings import OpenAPISettings
from delf_schemas.effects import (
    Applied,
    DeclaredEffects,
    Match,
    folder_of_known_actions,
)

if TYPE_CHECKING:
    from delf_openapi.loading import API


class OperationEffects:
    """The effects that a user declared for the operations of a specification.

    A specification that consists of files or a mapping is the user's own, so the effects apply to
    all its operations. If a document of the specification is from the web, a stranger may change
    the operations, so :class:`DeclaredEffects` decides to which operations the effects apply.

    Args:
        name: The connection's name.
        settings: The settings with ``effects``.
        api: The specification, with its entries as they were compiled.

    Raises:
        ConnectionConfigurationError: If a selector of ``effects`` matches nothing.
    """

    def __init__(self, name: str, settings: OpenAPISettings, api: API) -> None:
        self._entries = api.entries
        self._effects = settings.effects
        self._selectors = deciding_selectors(settings.effects, api.endpoints, name)
        self._matches: dict[str, Match] = {}
        # The operations to which the effects apply; None for a specification of the user's own,
        # where the effects apply to all operations.
        self._recorded_effects: DeclaredEffects | None = None
        if self._selectors and api.document.trees.are_from_web:
            has_base_url = settings.base_url is not None
            self._matches = _matches(api, self._selectors, has_base_url=has_base_url)
            identity = json.dumps([name, api.document.trees.uri])
            file = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
            path = folder_of_known_actions("openapi") / file
            self._recorded_effects = DeclaredEffects(settings.effects, path)

    def apply(self) -> Applied:
        """Set the actions' effects; return these effects, and the actions not yet accepted."""
        if self._recorded_effects is None:
            applied = Applied(self._declared_effects(), unknown=[])
        else:
            applied = self._recorded_effects.apply(self._matches)
        # Operations that the setting ``allow`` leaves out have no entry.
        effects: dict[str, Effect] = {
            name: effect for name, effect in applied.effects.items() if name in self._entries
        }
        for name, effect in effects.items():
            self._entries[name].effect = effect
        unknown = [name for name in applied.unknown if name in self._entries]
        return Applied(effects, unknown, applied.record_problem)

    def _declared_effects(self) -> dict[str, Effect]:
        return {
            name: strictest(self._effects[selector] for selector in selectors)
            for name, selectors in self._selectors.items()
        }

    def accept(self) -> None:
        """Accept the operations as they are now; the setting ``effects`` then applies to them."""
        if self._recorded_effects is not None:
            self._recorded_effects.accept()


def _matches(
    api: API, selectors_by_name: dict[str, list[str]], *, has_base_url: bool
) -> dict[str, Match]:
    """Return the operations that selectors match, with digests of their descriptions.

    Operations that the setting ``allow`` leaves out are included: their effects apply, too, if the
    user later adds them to ``allow``.

    Args:
        api: The specification.
        selectors_by_name: A mapping from action name to selectors.
        has_base_url: Whether the settings override the servers of the specification.
    """
    digests = OperationDigests(api.document, has_base_url=has_base_url)
    return {
        endpoint.name: Match(selectors_by_name[endpoint.name], digests.digest(endpoint))
        for endpoint in api.endpoints
        if endpoint.name in selectors_by_name
    }
