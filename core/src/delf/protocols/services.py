"""``Service``: a typed object that one plugin offers to others by name."""

from __future__ import annotations

from typing import Generic, TypeVar

from delf.records import dataclass

P = TypeVar("P")


@dataclass(frozen=True)
class Service(Generic[P]):
    """A service by its public name, its protocol and its purpose.

    The code that needs a service declares a ``Service``;
    :meth:`delf.plugins.host.PluginHost.service` returns the object that a plugin exports for the
    service.

    Args:
        name: The name of the entry point in the group ``delf.exports``.
        protocol: The protocol of the object; None for a function.
        purpose: The feature that needs the service, for the message if no plugin offers it.
    """

    name: str
    protocol: type[P] | None
    purpose: str
