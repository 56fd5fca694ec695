"""``AnyProject``: what an agent takes from a project, whoever keeps its settings.

:mod:`delf_engine.project.project` reads settings from ``delf.toml``, ``DELF_*`` and ``--set``. A
program that keeps settings elsewhere gives an object of its own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from delf.errors import ConfigurationError
from delf.trust.decisions import Trust
from delf.types import IN_PROCESS
from delf_engine.journal.factory import durable_journal

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.tools.context import Connect
    from delf_engine.config import AgentConfig


class AnyProject(Protocol):
    """The parts of a project that ``Agent(project=…)`` and ``from_project`` use."""

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
        """The variables in which settings and keys are looked up."""
        ...

    @property
    def warnings(self) -> Iterable[str]:
        """Return warnings for the user about things that may be wrong."""
        ...

    def connector(self, host: PluginHost) -> Connect:
        """Make the function that makes its connections, and others by their type.

        Args:
            host: Knows the types.
        """
        ...

    def secrets(self) -> Iterable[str]:
        """Every secret in it, whether or not a task is given it. Nothing in it has to be right."""
        ...


def project_at(
    path: str | os.PathLike[str] | AnyProject, trust: bool | Trust = False
) -> AnyProject:
    """The project of a directory or of a ``delf.toml``; one that was read already stays as it is.

    Args:
        path: Either, or the project.
        trust: Vouch for its folder, whose files else have no effect before the person trusted them.

    Raises:
        FolderNotTrustedError: When nobody trusts its files.
        ConfigurationError: When it is neither, or the file is wrong.
    """
    from delf_engine.project.project import load_project

    if not isinstance(path, (str, os.PathLike)):
        return path
    given = Path(path).expanduser()
    if given.is_file():
        return load_project(given.absolute().parent, file=given, trust=trust)
    if not given.is_dir():
        raise ConfigurationError(f"{given} does not exist", hint="name a folder or a delf.toml")
    return load_project(given, trust=trust)


def trust_of(project: AnyProject | None) -> Trust:
    """Return the trust that counts for a project's folder.

    Of a project that a program keeps elsewhere, the program's.

    Args:
        project: The project.
    """
    if project is None:
        return Trust.here()
    known = getattr(project, "trust", None)
    return known if isinstance(known, Trust) else Trust.here(project.root)


def connector_of(
    project: AnyProject | None, host: PluginHost, environ: Mapping[str, str], folder: Path
) -> Connect:
    """Make the function that makes connections by name, also without a project.

    Args:
        project: The project.
        host: Knows the types.
        environ: Where settings are looked up without a project.
        folder: From where relative paths count without one.
    """
    if project is not None:
        return project.connector(host)

    from delf_engine.project.connections import Connector

    return Connector(host=host, entries={}, environ=environ, folder=folder, trust=trust_of(None))


def journal_name(project: AnyProject, host: PluginHost) -> str:
    """The journal that is used in a project: the one it names, else one that outlives the process.

    Args:
        project: The project.
        host: Knows what is installed.
    """
    return project.journal or durable_journal(host) or IN_PROCESS
