"""The journal that commands use: the configured one, else ``sql`` where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delf.errors import ConfigurationError

if TYPE_CHECKING:
    from delf.config.project import Project
    from delf.plugins.host import PluginHost
    from delf.protocols.journal import Journal

DEFAULT: Final = "sql"
_FIELD: Final = "journal"


def default_journal(host: PluginHost) -> str:
    """The journal of a command that nobody told which: one that outlives it, if there is one."""
    from delf.specs import JournalSpec

    installed = {spec.name for spec in host.specs(JournalSpec)}
    return DEFAULT if DEFAULT in installed else "memory"


def journal_name(project: Project, host: PluginHost) -> str:
    """The journal that ``delf run`` uses here. Nothing else of the configuration is looked at."""
    values = project.agent_values
    if not values.has((_FIELD,)):
        return default_journal(host)
    others = {path[0] for path, _ in values.leaves()} - {_FIELD}
    return str(values.resolve(project.environ, without=others)[_FIELD])


def open_inbox(project: Project, host: PluginHost) -> Any:
    """The journal that ``delf run`` uses here, if other processes can speak through it.

    Raises:
        ConfigurationError: When they cannot.
    """
    from delf.protocols.journal import SupportsInbox

    journal = open_journal(project, host)
    if not isinstance(journal, SupportsInbox):
        raise ConfigurationError(
            f"the journal {journal_name(project, host)!r} is not for several processes",
            hint='pip install delf-plugin-journal-sql, and journal = "sql"',
        )
    return journal


def open_journal(project: Project, host: PluginHost) -> Journal:
    """The journal that ``delf run`` uses here."""
    from delf.environment import using_environ
    from delf.plugins.factories import make
    from delf.specs import JournalSpec

    spec = host.spec(JournalSpec, journal_name(project, host))
    with using_environ(project.environ):
        return make(host, spec, project.plugin_options)
