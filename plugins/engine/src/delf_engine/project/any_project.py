"""``AnyProject``: the protocol of a project, independent of where its settings are stored.

:mod:`delf_engine.project.project` reads settings from ``delf.toml``, ``DELF_*`` and ``--set``. A
program that keeps settings elsewhere passes an object of its own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from delf.errors import ConfigurationError
from delf.machine.folders import expand_home
from delf.trust.decisions import Trust
from delf.types import IN_PROCESS
from delf_engine.journal.factory import durable_journal

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.tools.context import Connect
    from delf_engine.config import AgentConfig


class AnyProject(Protocol):
    """The protocol of project objects for ``Agent(project=…)`` and ``from_project``."""

    @property
    def root(self) -> Path:
        """The project's folder."""
        ...

    @property
    def agent(self) -> AgentConfig:
        """The agent's configuration, whose ``model_fields_set`` has only the configured fields."""
        ...

    @property
    def journal(self) -> str | None:
        """The journal's name, if configured; available even if other settings are invalid."""
        ...

    @property
    def connections(self) -> Collection[str]:
        """The names of the project's connections."""
        ...

    @property
    def plugin_options(self) -> Mapping[str, Mapping[str, Any]]:
        """The options of plugins, by plugin name and option name."""
        ...

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment variables in which settings and API keys are looked up."""
        ...

    @property
    def warnings(self) -> Iterable[str]:
        """Warnings for the user about settings that may be wrong."""
        ...

    def connector(self, host: PluginHost) -> Connect:
        """Return a function that creates connections by their name or type.

        Args:
            host: The plugins.
        """
        ...

    def secrets(self) -> Iterable[str]:
        """Return all secrets of the project, even if other settings are invalid."""
        ...


def project_at(
    path: str | os.PathLike[str] | AnyProject, trust: bool | Trust = False
) -> AnyProject:
    """Load the project of a folder or of a ``delf.toml``; return a project object unchanged.

    Args:
        path: The path of the folder or file, or a project object.
        trust: True to trust the folder. Otherwise the user must have trusted the folder's files.

    Raises:
        FolderNotTrustedError: If the folder's files are not trusted.
        ConfigurationError: If the path does not exist, or the ``delf.toml`` is invalid.
    """
    from delf_engine.project.project import load_project

    if not isinstance(path, (str, os.PathLike)):
        return path
    project_path = expand_home(path)
    if project_path.is_file():
        return load_project(project_path.absolute().parent, file=project_path, trust=trust)
    if not project_path.is_dir():
        raise ConfigurationError(
            f"{project_path} does not exist", hint="name a folder or a delf.toml"
        )
    return load_project(project_path, trust=trust)


def trust_of(project: AnyProject | None) -> Trust:
    """Return the trust decisions that apply to a project's folder.

    A project object may have its own :class:`Trust` as attribute ``trust``. Otherwise the decisions
    that the user has stored apply.

    Args:
        project: The project.
    """
    if project is None:
        return Trust.here()
    trust = getattr(project, "trust", None)
    return trust if isinstance(trust, Trust) else Trust.here(project.root)


def connector_of(
    project: AnyProject | None, host: PluginHost, environ: Mapping[str, str], folder: Path
) -> Connect:
    """Return a function that creates connections, with or without a project.

    Args:
        project: The project; None without one.
        host: The plugins.
        environ: The environment variables for settings, used without a project.
        folder: The folder for relative paths in settings, used without a project.
    """
    if project is not None:
        return project.connector(host)

    from delf_engine.project.connections import Connector

    return Connector(host=host, entries={}, environ=environ, folder=folder, trust=trust_of(None))


def journal_name(project: AnyProject, host: PluginHost) -> str:
    """Return the name of a project's journal.

    The journal is the configured journal, else an installed durable journal, else the journal in
    memory.

    Args:
        project: The project.
        host: The plugins.
    """
    return project.journal or durable_journal(host) or IN_PROCESS
