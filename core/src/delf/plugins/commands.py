"""The program ``delf`` as the commands of plugins see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    from delf.plugins.host import PluginHost
    from delf.tools.context import Connect


class ConnectionSection(Protocol):
    """The section of a project's settings that configures one connection."""

    @property
    def type(self) -> str:
        """The name of the connection's type, as after ``type =`` in ``delf.toml``."""
        ...


class ProjectSettings(Protocol):
    """The settings of the project in which a command runs."""

    @property
    def file(self) -> Path | None:
        """The project's ``delf.toml``; None if the project has none."""
        ...

    @property
    def connections(self) -> Mapping[str, ConnectionSection]:
        """The configured connections by name."""
        ...

    @property
    def plugin_options(self) -> Mapping[str, Mapping[str, Any]]:
        """Options by plugin name."""
        ...

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables in which settings and keys are looked up."""
        ...

    def connector(self, host: PluginHost) -> Connect:
        """Return a function that creates a connection from its name or its type.

        Args:
            host: The plugins.
        """
        ...


@runtime_checkable
class Program(Protocol):
    """The running program, which a command gets as ``ctx.find_root().obj``.

    A test that invokes the command alone has no program; the object is None then.
    """

    def load_project(self) -> ProjectSettings:
        """Load the settings that apply in the current folder.

        Raises:
            FolderNotTrustedError: If the project's files are not trusted.
            ConfigurationError: For an invalid setting, with file, key and allowed values.
        """
        ...

    def discover(self, environ: Mapping[str, str] | None = None) -> PluginHost:
        """Return the installed plugins.

        Args:
            environ: The environment variables for the plugins. None stands for the variables of
                this process and the stored API keys.
        """
        ...
