"""The hooks that a plugin may implement: the reference for plugin authors.

A plugin is a module named by an entry point of the group ``delf``::

    [project.entry-points.delf]
    tickets = "delf_tickets.plugin"

It implements any of :data:`HOOKS`. A hook takes no argument and returns an iterable of the specs
that declare the hook in :mod:`delf.specs`, each with an example. Specs only name things; the code
behind them is imported on first use::

    from delf.hookspecs import hookimpl
    from delf.specs import ConnectionSpec

    @hookimpl
    def delf_connections():
        yield ConnectionSpec(
            name="tickets",
            summary="The support desk's tickets.",
            factory="delf_tickets.connection:Tickets",
        )

The plugin's distribution states for its installer what it was written for:
``dependencies = ["delf-core>=0.1,<1"]``. With ``keywords = ["delf-plugin-api-1"]`` delf
leaves the plugin out, with the reason, if :data:`PLUGIN_API` has another number.
"""

from __future__ import annotations

from typing import Final

import pluggy

from delf.specs import Spec

PLUGIN_API: Final = 1
"""The version of the plugin interface; incremented by changes that break existing plugins."""

ENTRY_POINT_GROUP: Final = "delf"
"""The entry point group of a plugin's module of hooks."""

EXPORTS_GROUP: Final = "delf.exports"
"""The entry point group of names for ``from delf import NAME``."""

CONNECTIONS_GROUP: Final = "delf.connections"
"""The entry point group of classes of connections, for packages that bring nothing else."""

DISTRIBUTION: Final = "delf-core"
"""The distribution that plugins depend on; `delf` on PyPI is another project."""

hookimpl = pluggy.HookimplMarker("delf")
"""Marks a function as the implementation of the hook of its name."""

HOOKS: Final[dict[str, type[Spec]]] = {
    spec.hook: spec for spec in Spec.__subclasses__() if spec.__module__ == Spec.__module__
}
"""Every hook with the spec that it returns, in the order of :mod:`delf.specs`."""
