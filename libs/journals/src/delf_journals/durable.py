"""The journal that outlives its process, for what cannot do without one."""

from __future__ import annotations

from delf.errors import OptionalDependencyError
from delf.official import packages, usual
from delf.plugins.host import PluginHost
from delf.plugins.journals import durable_journal
from delf.specs import JournalSpec


def need_durable_journal(host: PluginHost, purpose: str) -> str:
    """The installed journal that outlives its process, where there is no doing without.

    Args:
        host: Knows what is installed.
        purpose: What needs it, for the message.

    Raises:
        OptionalDependencyError: When none is installed, with a package that brings one.
        PluginError: When one is installed and cannot be used, with the reason.
    """
    name = durable_journal(host)
    if name is not None:
        return name
    for known, package in packages("journal").items():
        if any(record.distribution == package for record in host.records()):
            host.spec(JournalSpec, known)  # raises: it is there, and says why it is of no use
    raise OptionalDependencyError(
        f"{purpose} needs a journal that outlives the process",
        package=durable_package(),
    )


def durable_package() -> str:
    """A package that brings a journal that lasts, for advice."""
    return packages("journal")[usual("journal")]
