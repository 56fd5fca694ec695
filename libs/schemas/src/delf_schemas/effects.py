"""The setting ``effects``: the effects that a user declares for the actions of a service."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from delf.errors import ConfigurationError
from delf.machine.own_files import is_private_folder, read_private, write_private_text
from delf.tools.action import strictest
from delf.types import Effect

_log = logging.getLogger(__name__)

_FORMAT: Final = 2
_IRREVERSIBLE: Final[Effect] = "irreversible"


class Match(NamedTuple):
    """An action for which a user has declared an effect.

    Args:
        selectors: The keys of the setting ``effects``, such as names and patterns, that decide the
            effect of the action. Of their effects, the strictest counts.
        digest: The digest of the service's description of the action.
    """

    selectors: Collection[str]
    digest: str


class Applied(NamedTuple):
    """The result of applying the setting ``effects`` to actions.

    Args:
        effects: The effect of each action.
        unknown: The actions that the service has added or changed since the user declared the
            effects; these actions count as irreversible.
    """

    effects: dict[str, Effect]
    unknown: list[str]


def folder_of_known_actions(plugin: str) -> Path:
    """Return the folder for the ``known_actions`` files of a plugin, in the user's state folder.

    Args:
        plugin: The name of the plugin.
    """
    from platformdirs import user_state_path

    return user_state_path("delf", appauthor=False) / plugin


def description_digest(parts: Any) -> str:
    """Return a digest of a service's description of an action.

    Args:
        parts: All that a user judges to declare the action's effect, as JSON data.
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class DeclaredEffects:
    """The effects that a user declared for the actions of a service.

    The service's author is a stranger, who may give a name that the user judged to another action.
    So a selector covers only the actions that it matched when it first matched any, as the service
    described the actions then. Other actions that the selector matches later count as irreversible
    until the user accepts them.

    Args:
        effects: The setting: a mapping from selector to effect.
        known_actions: The path of a private file, which stores the digests of the actions that each
            selector covers.
    """

    def __init__(self, effects: Mapping[str, Effect], known_actions: Path) -> None:
        self._effects = effects
        self._path = known_actions
        # From selector to the digests of the actions that it covers; None until the file is read.
        self._covered: dict[str, list[str]] | None = None
        # The actions that each selector matched last.
        self._matched: dict[str, list[str]] = {}

    def apply(self, matches: Mapping[str, Match]) -> Applied:
        """Return the effects of actions, and record what selectors cover that had no match before.

        Args:
            matches: A mapping from action name to match, for all actions that a selector matches.
        """
        self._matched = self._digests_by_selector(matches)
        if self._covered is None:
            self._covered = self._read()
        covered = self._covered
        first_matches = {
            selector: digests
            for selector, digests in self._matched.items()
            if selector not in covered
        }
        if first_matches:
            self._record(first_matches)
        applied = Applied({}, [])
        for action, match in matches.items():
            effect = strictest(self._effects[selector] for selector in match.selectors)
            is_known = all(
                match.digest in covered.get(selector, ())
                for selector in match.selectors
                if self._effects[selector] != _IRREVERSIBLE
            )
            if effect != _IRREVERSIBLE and not is_known:
                effect = _IRREVERSIBLE
                applied.unknown.append(action)
            applied.effects[action] = effect
        return applied

    def accept(self) -> None:
        """Let each selector cover the actions that it matched last, also for later processes."""
        self._record(self._matched)

    def _digests_by_selector(self, matches: Mapping[str, Match]) -> dict[str, list[str]]:
        """Return the digests of the actions that each selector matches.

        Selectors for the strictest effect are left out, because they need no record.
        """
        digests: dict[str, list[str]] = {}
        for match in matches.values():
            for selector in match.selectors:
                if self._effects[selector] != _IRREVERSIBLE:
                    digests.setdefault(selector, []).append(match.digest)
        return digests

    def _record(self, digests: Mapping[str, list[str]]) -> None:
        """Let selectors cover actions; if the file cannot be written, log a warning."""
        if self._covered is None:
            self._covered = self._read()
        self._covered.update(digests)
        # Another process may have written the file since this process read it.
        text = json.dumps({"format": _FORMAT, "covered": {**self._read(), **digests}})
        try:
            write_private_text(self._path, text)
        except (OSError, ConfigurationError) as error:
            _log.warning("actions covered by effects are known only to this process: %s", error)

    def _read(self) -> dict[str, list[str]]:
        """Return the digests in the file; empty without a readable file of the user alone."""
        text = read_private(self._path) if is_private_folder(self._path.parent) else None
        if text is None:
            return {}
        try:
            stored: Any = json.loads(text)
            if stored["format"] != _FORMAT:
                return {}
            return {
                str(selector): [str(digest) for digest in digests]
                for selector, digests in stored["covered"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}
