"""Which journal is meant, and the one way to make it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from delf.environment import using_environ
from delf.plugins.factories import make
from delf.specs import JournalSpec

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.protocols.journal import Journal


def durable_journal(host: PluginHost) -> str | None:
    """The installed journal that outlives its process: of several, one that processes share.

    Args:
        host: Knows what is installed.
    """
    found = [spec for spec in host.specs(JournalSpec) if spec.durable]
    found.sort(key=lambda spec: (not spec.shared, spec.name))
    return found[0].name if found else None


def make_journal(
    host: PluginHost,
    name: str,
    options: Mapping[str, Mapping[str, Any]],
    environ: Mapping[str, str],
    **more: Any,
) -> Journal:
    """A journal, not yet open.

    Args:
        host: Where its plugin is.
        name: Its name.
        options: Options by plugin.
        environ: Where settings are looked up.
        more: Options that win, as ``url``.

    Raises:
        PluginError: When there is none of this name.
        ConfigurationError: For options that do not fit.
    """
    with using_environ(environ):
        return make(host, host.spec(JournalSpec, name), options, **more)
