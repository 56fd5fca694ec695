"""The packages of ``allowed_libs`` that are not installed beside delf."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec

from packaging.requirements import InvalidRequirement, Requirement

from delf.packages.official import how_to_install
from delf_sandbox.modules import import_names


def missing_libraries(libraries: Iterable[str]) -> dict[str, str]:
    """Return a mapping from each requirement that cannot be imported to the reason.

    For a valid requirement, the reason includes the command that installs the package.

    Args:
        libraries: Requirements of packages; a module's name, such as ``sklearn``, is accepted, too.
    """
    missing: dict[str, str] = {}
    for library in libraries:
        reason = _reason_against(library)
        if reason is not None:
            missing[library] = reason
    return missing


def _reason_against(library: str) -> str | None:
    """Return why a requirement cannot be imported, and what to do; None if it can be imported."""
    try:
        requirement = Requirement(library)
    except InvalidRequirement:
        return "it is not a package's name with versions, such as pandas or numpy>=2"
    name = requirement.name
    remedy = how_to_install(f"{name}{requirement.specifier}")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        # The name may be that of a module, such as ``sklearn`` of the package scikit-learn.
        if not requirement.specifier and _is_module(import_names(name)[0]):
            return None
        return f"it is not installed; install it with {remedy}"
    if requirement.specifier.contains(version, prereleases=True):
        return None
    return f"{name} {version} is installed; install the other version with {remedy}"


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
