"""``Service``: an object that one plugin gives to others, looked up by name with its type."""

from __future__ import annotations

from typing import Generic, TypeVar

from delf.records import dataclass

P = TypeVar("P")


@dataclass(frozen=True)
class Service(Generic[P]):
    """A service by its public name, its protocol, and its purpose in words.

    The user of a service declares it, and :meth:`delf.plugins.host.PluginHost.service` finds it
    among the exports of plugins.

    Args:
        name: The name of the entry point in the group ``delf.exports``.
        protocol: The protocol of the object.
        purpose: What needs it, for the message where no plugin gives it.
    """

    name: str
    protocol: type[P]
    purpose: str
