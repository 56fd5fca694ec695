"""The setting ``effects``: the effects that a user declares for the actions of a service."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from delf.errors import ConfigurationError
from delf.machine.folders import user_folder
from delf.machine.own_files import (
    is_private_folder,
    locked,
    read_private,
    write_private_text,
)
from delf.tools.action import strictest
from delf.types import Effect

_log = logging.getLogger(__name__)

_FORMAT: Final = 2
_IRREVERSIBLE: Final[Effect] = "irreversible"
_NOT_STORED: Final = "actions covered by effects are known only to this process"


class Match(NamedTuple):
    """An action for which a user has declared an effect.

    Args:
        selectors: The keys of the setting ``effects`` that match the action, such as ``get_*``. If
            these keys have different effects, the strictest effect counts.
        digest: The digest of the service's description of the action. None if no digest can be
            computed; the action then always counts as irreversible.
    """

    selectors: Collection[str]
    digest: str | None


class Applied(NamedTuple):
    """The result of applying the setting ``effects`` to actions.

    Args:
        effects: The effect of each action.
        unknown: The actions that count as irreversible because the service has added or changed
            them since the user declared the effects, or because of ``record_problem``.
        record_problem: Why the file with the actions that the user judged cannot be used; None if
            the file is usable or missing.
    """

    effects: dict[str, Effect]
    unknown: list[str]
    record_problem: str | None = None


class _UnusableRecordError(Exception):
    """The file of known actions exists, but its content cannot be trusted or read."""


def folder_of_known_actions(plugin: str) -> Path:
    """Return the folder for the ``known_actions`` files of a plugin, in the user's state folder.

    Args:
        plugin: The name of the plugin.
    """
    return user_folder("state") / plugin


def description_digest(parts: Any) -> str:
    """Return a digest of a service's description of an action.

    Args:
        parts: The texts and schemas by which a user judges what the action does, as JSON data.
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class DeclaredEffects:
    """The effects that a user declared for the actions of a service.

    A declared effect applies only to covered actions. When a selector, such as ``get_*``, first
    matches actions, the selector covers these actions with their present descriptions. The service
    may later add an action, or give a known name to another action. This action is not covered, and
    counts as irreversible until the user accepts the action.

    If the file with the covered actions is damaged or open to others, no action is covered.

    Args:
        effects: The setting: a mapping from selector to effect.
        known_actions: The path of a private file, which stores the digests of the actions that each
            selector covers.
    """

    def __init__(self, effects: Mapping[str, Effect], known_actions: Path) -> None:
        self._effects = effects
        self._path = known_actions
        # The digests of the actions that each selector covers; None until the file is read.
        self._covered: dict[str, set[str]] | None = None
        # The reason why the file is unusable; None if the file is usable or missing.
        self._problem: str | None = None
        # The digests of the actions that each selector matched in the last apply().
        self._last_matches: dict[str, set[str]] = {}

    def apply(self, matches: Mapping[str, Match]) -> Applied:
        """Return the effect of each action: the declared effect, if all selectors cover the action.

        An action that is not covered is ``irreversible``. The action is listed in
        :attr:`Applied.unknown`, unless the declared effect is ``irreversible``, too. A selector
        that matches actions for the first time covers these actions from now on.

        Args:
            matches: A mapping from action name to match, for all actions that a selector matches.
        """
        self._last_matches = self._digests_by_selector(matches)
        self._cover_first_matches()
        # The call above has read the file, and set the problem if the file is unusable.
        applied = Applied(effects={}, unknown=[], record_problem=self._problem)
        for action, match in matches.items():
            declared_effect = strictest(self._effects[selector] for selector in match.selectors)
            if declared_effect == _IRREVERSIBLE or self._is_covered(match):
                applied.effects[action] = declared_effect
            else:
                applied.effects[action] = _IRREVERSIBLE
                applied.unknown.append(action)
        return applied

    def _cover_first_matches(self) -> None:
        """For each selector that covers no action yet, cover the actions that match it now."""
        covered = self._load()
        is_file_usable = self._problem is None  # _load() sets the problem
        first_matches = {
            selector: digests
            for selector, digests in self._last_matches.items()
            if selector not in covered
        }
        if first_matches and is_file_usable:
            self._record(first_matches)

    def _is_covered(self, match: Match) -> bool:
        """Return True if each selector that matches an action covers the action."""
        covered = self._load()
        return all(match.digest in covered.get(selector, ()) for selector in match.selectors)

    def accept(self) -> None:
        """Let the declared effects apply to all actions of the last :meth:`apply`.

        The user has accepted these actions. They are stored in the file as covered; a file that is
        damaged or open to others is replaced.
        """
        self._load()  # first, because loading the file may set the problem
        self._problem = None
        self._record(self._last_matches, is_accepted=True)

    def _digests_by_selector(self, matches: Mapping[str, Match]) -> dict[str, set[str]]:
        """Return the digests of the actions that each selector matches.

        Selectors with the effect ``irreversible`` are left out: this effect applies to any action,
        whether covered or not.
        """
        digests: dict[str, set[str]] = {}
        for match in matches.values():
            if match.digest is None:
                continue
            for selector in match.selectors:
                if self._effects[selector] != _IRREVERSIBLE:
                    digests.setdefault(selector, set()).add(match.digest)
        return digests

    def _load(self) -> dict[str, set[str]]:
        """Return the digests of the covered actions by selector.

        The first call reads the file. If the file is unusable, no action is covered, and the
        reason is stored for the user.
        """
        if self._covered is None:
            try:
                self._covered = self._read()
            except _UnusableRecordError as error:
                self._covered = {}
                self._problem = str(error)
        return self._covered

    def _record(self, digests: Mapping[str, set[str]], *, is_accepted: bool = False) -> None:
        """Cover actions in this process, and store them in the file for later processes.

        If the file cannot be written, log a warning.

        Args:
            digests: The digests of the actions that each selector covers from now on.
            is_accepted: Whether the user accepted the actions. The actions then replace the stored
                actions of the same selectors. A file that is damaged or open to others is replaced.
        """
        covered = self._load()
        covered.update(digests)  # applies even if the file cannot be used below
        with locked(self._path):
            try:
                # Another process may have written the file since this process read it.
                in_file = self._read()
            except _UnusableRecordError as error:
                if not is_accepted:
                    _log.warning("%s: %s", _NOT_STORED, error)
                    return
                in_file = {}
            # If another process has stored the actions of a selector, use these actions. Only the
            # user may replace the stored actions of a selector.
            covered.update(in_file)
            if is_accepted:
                covered.update(digests)
            content = {selector: sorted(covered[selector]) for selector in covered}
            try:
                write_private_text(self._path, json.dumps({"format": _FORMAT, "covered": content}))
            except (OSError, ConfigurationError) as error:
                _log.warning("%s: %s", _NOT_STORED, error)

    def _read(self) -> dict[str, set[str]]:
        """Return the digests in the file; empty if the file is missing.

        Raises:
            _UnusableRecordError: If the file is damaged, or if others can access it or its folder.
        """
        folder = self._path.parent
        if _is_missing(folder):
            return {}
        if not is_private_folder(folder):
            raise _UnusableRecordError(
                f"others can access {folder}, which has the record {self._path.name} of the "
                f"actions that effects covers (chmod 700 {folder})"
            )
        if _is_missing(self._path):
            return {}
        text = read_private(self._path)
        if text is None:
            raise self._unusable("is unreadable or open to others")
        try:
            stored: Any = json.loads(text)
            # Compare the format first, because another format may have other fields.
            if stored["format"] != _FORMAT:
                raise self._unusable("has the format of another version of delf")
            return {
                str(selector): {str(digest) for digest in digests}
                for selector, digests in stored["covered"].items()
            }
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise self._unusable("is damaged") from None

    def _unusable(self, problem: str) -> _UnusableRecordError:
        return _UnusableRecordError(
            f"the record {self._path} of the actions that effects covers {problem}"
        )


def _is_missing(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        pass  # the path may exist, for example in a folder that is not readable
    return False
