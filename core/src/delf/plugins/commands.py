"""Commands of the program that an agent opens, too."""

from __future__ import annotations

from typing import TypeVar

from delf.errors import OptionalDependencyError, PluginError
from delf.plugins.catalog import package_of
from delf.plugins.host import PluginHost
from delf.specs import CommandSpec

T = TypeVar("T")


def need_command(host: PluginHost | None, name: str, protocol: type[T]) -> T:
    """A command that can be given an agent.

    Args:
        host: The plugins; those installed when None.
        name: The command's name.
        protocol: What it has to be.

    Raises:
        OptionalDependencyError: When it is not installed, with the package that brings it.
        PluginError: When its package cannot be used, or is too old to take an agent.
    """
    host = host or PluginHost.discover()
    package = package_of("command", name) or ""
    there = any(spec.name == name for spec in host.specs(CommandSpec))
    if not there and not any(record.distribution == package for record in host.records()):
        raise OptionalDependencyError(f"`{name}` is not installed", package=package)
    command = host.resolve(host.spec(CommandSpec, name))
    if not isinstance(command, protocol):
        raise PluginError(f"the command {name!r} takes no agent", hint=f"upgrade {package}")
    return command
