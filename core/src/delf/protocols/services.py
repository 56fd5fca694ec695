"""``Service``: a typed object that one plugin offers to others by name."""

from __future__ import annotations

from typing import Generic, TypeVar

from delf.records import dataclass

P = TypeVar("P")


@dataclass(frozen=True)
class Service(Generic[P]):
    """A service by its public name, its protocol and its purpose.

    The user of a service declares it, and :meth:`delf.plugins.host.PluginHost.service` finds it
    among the exports of plugins.

    Args:
        name: The name of the entry point in the group ``delf.exports``.
        protocol: The protocol of the object; None for a function.
        purpose: The feature that needs the service, for the message if no plugin offers it.
    """

    name: str
    protocol: type[P] | None
    purpose: str
