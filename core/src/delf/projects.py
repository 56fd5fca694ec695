"""Projects: where an agent's settings come from that code does not give.

Reading ``delf.toml``, ``DELF_*`` and ``--set`` is the package ``delf-project``, which an agent
that is made in code does without. Whoever keeps settings elsewhere gives a :class:`Project` of
their own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from delf.optional import optional
from delf.plugins.journals import durable_journal
from delf.types import IN_PROCESS

if TYPE_CHECKING:
    from delf.config import AgentConfig
    from delf.plugins.host import PluginHost
    from delf.tools.context import Connect
    from delf.trust import Trust


class Project(Protocol):
    """What an agent takes from a project, as ``Agent(project=…)`` and ``from_project`` do."""

    @property
    def root(self) -> Path:
        """The project's folder."""
        ...

    @property
    def agent(self) -> AgentConfig:
        """The agent's configuration; what was not given is not among its ``model_fields_set``."""
        ...

    @property
    def journal(self) -> str | None:
        """The name of its journal if one was given; nothing else has to be right."""
        ...

    @property
    def connections(self) -> Collection[str]:
        """The names of its connections."""
        ...

    @property
    def plugin_options(self) -> Mapping[str, Mapping[str, Any]]:
        """Options by plugin name."""
        ...

    @property
    def environ(self) -> Mapping[str, str]:
        """Where settings and keys are looked up."""
        ...

    @property
    def warnings(self) -> Iterable[str]:
        """What the user should know, though nothing is wrong for sure."""
        ...

    def connector(self, host: PluginHost) -> Connect:
        """What makes its connections, and others by their type.

        Args:
            host: Knows the types.
        """
        ...

    def secrets(self) -> Iterable[str]:
        """Every secret in it, whether or not a task is given it. Nothing in it has to be right."""
        ...


def library() -> Any:
    """The package that reads ``delf.toml``.

    Raises:
        OptionalDependencyError: When it is not installed.
    """
    return optional("delf_project", "what reads delf.toml")


def project_at(path: str | os.PathLike[str] | Project, trust: bool | Trust = False) -> Project:
    """The project of a directory or of a ``delf.toml``; one that was read already stays as it is.

    Args:
        path: Either, or the project.
        trust: Vouch for its folder, whose files else have no effect before the person trusted them.

    Raises:
        FolderNotTrustedError: When nobody trusts its files.
        ConfigurationError: When it is neither, or the file is wrong.
        OptionalDependencyError: When the package is not installed that reads it.
    """
    return library().project_at(path, trust) if isinstance(path, (str, os.PathLike)) else path


def trust_of(project: Project | None) -> Trust:
    """Whose word counts that a project's folder is trusted.

    Of a project that a program keeps elsewhere, the program's.

    Args:
        project: The project.
    """
    from delf.trust import Trust

    if project is None:
        return Trust.here()
    known = getattr(project, "trust", None)
    return known if isinstance(known, Trust) else Trust.here(project.root)


def connector_of(
    project: Project | None, host: PluginHost, environ: Mapping[str, str], folder: Path
) -> Connect:
    """What makes connections by name, also where there is no project.

    Args:
        project: The project.
        host: Knows the types.
        environ: Where settings are looked up without a project.
        folder: From where relative paths count without one.
    """
    if project is not None:
        return project.connector(host)

    def connect(name: str, **more: Any) -> Any:
        make = library().Connector(
            host=host, entries={}, environ=environ, folder=folder, trust=trust_of(None)
        )
        return make(name, **more)

    return connect


def journal_name(project: Project, host: PluginHost) -> str:
    """The journal that is used in a project: the one it names, else one that outlives the process.

    Args:
        project: The project.
        host: Knows what is installed.
    """
    return project.journal or durable_journal(host) or IN_PROCESS
