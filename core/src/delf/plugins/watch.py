"""Warnings about plugins whose import takes long or never ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from delf.plugins.discovery import Candidate

_log = logging.getLogger(__name__)
DISABLE_VARIABLE: Final = "DELF_DISABLE_PLUGINS"
SLOW_SECONDS: Final = 3.0
"""The seconds after which an import is named."""
LOOK_SECONDS: Final = 0.5


class ImportWatch:
    """A watchdog that warns about slow imports from its own thread.

    The thread runs while the context manager :meth:`running` is open.
    """

    def __init__(self) -> None:
        self._importing: tuple[Candidate, float] | None = None
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Generator[None]:
        """Watch the imports that :meth:`importing` announces."""
        thread = threading.Thread(target=self._warn_when_slow, name="delf-imports", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()  # forking is only safe without threads

    def importing(self, plugin: Candidate | None) -> None:
        """Announce the import of a plugin, or None for the time between two imports."""
        self._importing = None if plugin is None else (plugin, time.monotonic())

    def _warn_when_slow(self) -> None:
        """Warn once about each plugin whose import takes too long, until stopped."""
        reported_plugin: Candidate | None = None
        while not self._over.wait(LOOK_SECONDS):
            importing = self._importing
            if importing is None or importing[0] is reported_plugin:
                continue
            plugin, began = importing
            if time.monotonic() - began >= SLOW_SECONDS:
                reported_plugin = plugin
                _log.warning(
                    "the plugin %r (%s) is being imported for more than %g s; %s=%s leaves it out",
                    plugin.name,
                    plugin.origin,
                    SLOW_SECONDS,
                    DISABLE_VARIABLE,
                    plugin.name,
                )


@contextmanager
def watched_import(plugin: Candidate | None) -> Generator[None]:
    """Warn if the block, which imports a plugin's code, takes long.

    Args:
        plugin: The plugin; None watches nothing.
    """
    if plugin is None:
        yield
        return
    watch = ImportWatch()
    watch.importing(plugin)
    with watch.running():
        yield
