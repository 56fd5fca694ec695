"""The choice of the journal, and its only factory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from delf.environment import using_environ
from delf.errors import OptionalDependencyError
from delf.packages.official import packages, usual
from delf.plugins.factories import make
from delf.specs import JournalSpec
from delf.types import IN_PROCESS
from delf_engine.journal.in_process import InProcessJournal

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.protocols.journal import Journal


def durable_journal(host: PluginHost) -> str | None:
    """Return the installed durable journal, preferring a shared one.

    Args:
        host: Knows the installed plugins.
    """
    found = [spec for spec in host.specs(JournalSpec) if spec.durable]
    found.sort(key=lambda spec: (not spec.shared, spec.name))
    return found[0].name if found else None


def make_journal(
    host: PluginHost,
    name: str,
    options: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    **more: Any,
) -> Journal:
    """Return a journal, not yet open.

    Args:
        host: Where its plugin is.
        name: Its name; :data:`~delf.types.IN_PROCESS` for that of this process alone.
        options: Options by plugin.
        environ: Where settings are looked up.
        more: Options that win, as ``url``.

    Raises:
        PluginError: When there is none of this name.
        ConfigurationError: For options that do not fit.
    """
    if name == IN_PROCESS:
        return InProcessJournal()
    with using_environ(environ):
        return make(host, host.spec(JournalSpec, name), options, **more)


def need_durable_journal(host: PluginHost, purpose: str) -> str:
    """Return the installed journal that outlives its process, where there is no doing without.

    Args:
        host: Knows the installed plugins.
        purpose: The feature that needs a journal, for the message.

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
    """Return a package that brings a journal that lasts, for advice."""
    return packages("journal")[usual("journal")]
