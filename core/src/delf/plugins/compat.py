"""Whether a plugin fits this delf and this environment; decided before it is imported."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache
from typing import TYPE_CHECKING

from delf.hookspecs import DISTRIBUTION
from delf.namesake import NAMESAKE
from delf.plugins.discovery import Candidate, normalise
from delf.plugins.report import State

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_API = re.compile(r"delf-plugin-api-(\d+)", re.IGNORECASE)
# Requirements as nearly all are: what only an extra asks for, a name with versions, and versions
# of digits. They are judged without packaging, whose import takes as long as ten plugins.
_OF_AN_EXTRA = re.compile(r"[^;]+;\s*extra\s*==\s*(['\"])[\w.-]+\1\s*")
_VERSIONS = r"(?:[<>]=?|[=!~]=)\s*[\w.*+!]+"
_PLAIN = re.compile(
    r"([A-Za-z0-9][\w.-]*)(?:\[[\w.,\s-]*\])?\s*"
    rf"({_VERSIONS}(?:\s*,\s*{_VERSIONS})*)?\s*(;.*)?"
)
_RANGE = re.compile(r"(>=|<)\s*(\d+(?:\.\d+)*)")


Unfit = tuple[State, str]
"""``skipped`` for what was made for another delf, ``failed`` for what is incomplete; and why."""


def check(candidate: Candidate, *, version: str, api: int, installed: Hashable) -> Unfit | None:
    """Why a plugin cannot be used here, by what it asks for; None where it can.

    Args:
        candidate: The plugin; one that is given in code asks for nothing.
        version: The version of delf.
        api: The number of its plugin API.
        installed: As of :func:`delf.plugins.discovery.installed`: while it is the same, what a
            plugin requires is not looked up again.
    """
    if candidate.problem is not None:
        return "failed", candidate.problem
    return _check_api(candidate, api) or _check_requirements(candidate.requires, version, installed)


def _check_api(candidate: Candidate, api: int) -> Unfit | None:
    """A plugin without the keyword is judged by its requirement on delf alone."""
    numbers = [int(match[1]) for word in candidate.keywords if (match := _API.fullmatch(word))]
    if not numbers or api in numbers:
        return None
    wanted = " or ".join(map(str, sorted(numbers)))
    return ("skipped", f"needs delf with plugin API {wanted}, this has {api}")


@lru_cache(512)
def _check_requirements(
    requires: tuple[str, ...], version: str, installed_now: Hashable
) -> Unfit | None:
    unclear = [line for line in requires if not _is_plainly_met(line, version, installed_now)]
    if not unclear:
        return None
    from packaging.requirements import InvalidRequirement, Requirement

    missing: list[str] = []
    for line in unclear:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            return ("failed", f"its requirement {line!r} cannot be read")
        if not _applies(requirement):
            continue
        if normalise(requirement.name) == NAMESAKE:
            other = f"needs {NAMESAKE!r}, another project's package: delf's own is {DISTRIBUTION}"
            return ("failed", other)
        if normalise(requirement.name) == DISTRIBUTION:
            if not requirement.specifier.contains(version, prereleases=True):
                return (
                    "skipped",
                    f"needs {DISTRIBUTION}{requirement.specifier}, this is {version}",
                )
        elif not _installed(requirement.name, installed_now):
            missing.append(requirement.name)
    if missing:
        what = "package" if len(missing) == 1 else "packages"
        return ("failed", f"the {what} {', '.join(missing)} that it needs is not installed")
    return None


def _is_plainly_met(line: str, version: str, installed_now: Hashable) -> bool:
    if _OF_AN_EXTRA.fullmatch(line):
        return True
    plain = _PLAIN.fullmatch(line)
    if plain is None:
        return False
    name = normalise(plain[1])
    if name not in (DISTRIBUTION, NAMESAKE):
        # What is there need not be asked for on this platform.
        return _installed(plain[1], installed_now)
    return (
        name == DISTRIBUTION
        and plain[3] is None
        and all(_is_in_range(part.strip(), version) for part in (plain[2] or "").split(",") if part)
    )


def _is_in_range(part: str, version: str) -> bool:
    bound, this = _RANGE.fullmatch(part), _RANGE.fullmatch(f"<{version}")
    if bound is None or this is None:
        return False
    reached = _numbers(this[2]) >= _numbers(bound[2])
    return reached if bound[1] == ">=" else not reached


def _numbers(version: str) -> list[int]:
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()  # 1.0 is 1
    return numbers


def _applies(requirement: Requirement) -> bool:
    """Extras are optional, so their lines never apply; neither do those of other platforms."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    if requirement.marker is None:
        return True
    try:
        return requirement.marker.evaluate({"extra": ""})
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


@lru_cache(512)
def _installed(name: str, _installed_now: Hashable) -> bool:
    # Presence only: comparing versions would read the metadata of every dependency, and an
    # installer has done so before.
    from importlib import metadata

    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
