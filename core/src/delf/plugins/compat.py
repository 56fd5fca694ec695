"""Check that a plugin fits this delf, before it is imported.

The other packages that a plugin requires are its installer's business: where one is missing, the
import says so.
"""

from __future__ import annotations

import re

from delf.hookspecs import DISTRIBUTION
from delf.plugins.discovery import Candidate, normalise
from delf.plugins.report import State

_API = re.compile(r"delf-plugin-api-(\d+)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
# Nearly all plugins write one range of plain versions, which needs no import of packaging.
_RANGE = re.compile(r"[\w.-]+\s*>=\s*(\d+(?:\.\d+)*)\s*,\s*<\s*(\d+(?:\.\d+)*)\s*")
_VERSION = re.compile(r"\d+(?:\.\d+)*")

Unfit = tuple[State, str]
"""The state of a plugin that cannot be used, and why."""


def check(candidate: Candidate, *, version: str, api: int) -> Unfit | None:
    """The reason why a plugin cannot be used here; None where it can.

    Args:
        candidate: The plugin; one that is given in code asks for nothing.
        version: The version of delf.
        api: The number of its plugin API.
    """
    if candidate.blocked is not None:
        return "disabled", candidate.blocked
    if candidate.problem is not None:
        return "failed", candidate.problem
    numbers = [int(match[1]) for word in candidate.keywords if (match := _API.fullmatch(word))]
    if numbers and api not in numbers:
        wanted = " or ".join(map(str, sorted(numbers)))
        return "skipped", f"needs delf with plugin API {wanted}, this has {api}"
    for line in candidate.requires:
        name = _NAME.match(line)
        if name is None:
            return "failed", f"its requirement {line!r} cannot be read"
        if normalise(name[0]) == DISTRIBUTION and (unfit := _check_version(line, version)):
            return unfit
    return None


def _check_version(line: str, version: str) -> Unfit | None:
    """The reason why a requirement on delf is not met."""
    within = _RANGE.fullmatch(line)
    if within is not None and _VERSION.fullmatch(version):
        low, high = _numbers(within[1]), _numbers(within[2])
        if low <= _numbers(version) < high:
            return None
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return "failed", f"its requirement {line!r} cannot be read"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return "skipped", f"needs {DISTRIBUTION}{requirement.specifier}, this is {version}"


def _numbers(version: str) -> list[int]:
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()  # 1.0 is 1
    return numbers
