"""``allowed_libs``: packages that scripts may import, as a person writes them."""

from __future__ import annotations

from collections.abc import Iterable

from delf.errors import ConfigurationError


def applying(requirements: Iterable[str]) -> tuple[str, ...]:
    """The requirements whose marker is true here, without it; those that have none as they are.

    Args:
        requirements: As in ``allowed_libs``: ``pandas``, ``numpy>=2; python_version > "3.10"``.

    Raises:
        ConfigurationError: When one cannot be read, or its marker cannot be evaluated.
    """
    return tuple(text for text in map(_applying, requirements) if text is not None)


def _applying(written: str) -> str | None:
    """The requirement without its marker; None where that is false."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement

    text = written.strip()
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise _unreadable(written, f"which is not a library with its versions: {reason}") from None
    marker, requirement.marker = requirement.marker, None
    if marker is None:
        return text
    try:
        return str(requirement) if marker.evaluate({"extra": ""}) else None
    except (UndefinedComparison, UndefinedEnvironmentName) as error:
        raise _unreadable(written, f"whose marker means nothing: {error}") from None


def _unreadable(written: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"allowed_libs has {written!r}, {why}",
        hint="write pandas, 'pandas>=2' or 'numpy; python_version > \"3.10\"'",
    )
