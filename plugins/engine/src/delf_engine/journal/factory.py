"""The choice and creation of the agent's journal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from delf.environment import using_environ
from delf.errors import OptionalDependencyError
from delf.packages.official import packages, recommended_plugin
from delf.plugins.factories import make
from delf.protocols.context import PluginContext
from delf.specs import JournalSpec
from delf.types import IN_PROCESS
from delf_engine.journal.guarded import guarded
from delf_engine.journal.in_process import InProcessJournal

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.protocols.journal import Journal


def durable_journal(host: PluginHost) -> str | None:
    """Return the name of an installed durable journal, preferably of a shared one.

    None without a durable journal.

    Args:
        host: The plugins.
    """
    durable_specs = [spec for spec in host.specs(JournalSpec) if spec.durable]
    durable_specs.sort(key=lambda spec: (not spec.shared, spec.name))
    return durable_specs[0].name if durable_specs else None


def make_journal(
    host: PluginHost,
    name: str,
    options: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    **more: Any,
) -> Journal:
    """Create a journal without opening it.

    Args:
        host: The plugins.
        name: The journal's name; :data:`~delf.types.IN_PROCESS` for the in-memory journal.
        options: The options of plugins, by plugin name and option name.
        environ: The environment variables from which settings are read.
        more: Options that override ``options``, such as ``url``.

    Raises:
        PluginError: If no plugin provides the journal.
        ConfigurationError: If an option is invalid.
    """
    if name == IN_PROCESS:
        return InProcessJournal()
    context = PluginContext(environ=environ)
    with using_environ(environ):
        return guarded(make(host, host.spec(JournalSpec, name), options, context, **more), name)


def need_durable_journal(host: PluginHost, purpose: str) -> str:
    """Return the name of an installed durable journal; raise if there is none.

    Args:
        host: The plugins.
        purpose: The feature that needs a journal, for the message.

    Raises:
        OptionalDependencyError: If no durable journal is installed; the error names the package.
        PluginError: If an installed journal cannot be loaded; the error names the reason.
    """
    name = durable_journal(host)
    if name is not None:
        return name
    for journal_name, package in packages("journal").items():
        is_installed = any(record.distribution == package for record in host.records())
        if is_installed:  # but broken, because durable_journal() did not find it
            host.spec(JournalSpec, journal_name)  # raises with the reason
    raise host.with_load_failures(
        OptionalDependencyError(
            f"{purpose} needs a journal that outlives the process", package=durable_package()
        )
    )


def durable_package() -> str:
    """Return the name of the recommended package with a durable journal, for hints."""
    return packages("journal")[recommended_plugin("journal")]
