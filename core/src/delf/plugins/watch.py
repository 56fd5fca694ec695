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
"""The duration of an import in seconds after which a warning names the plugin."""
LOOK_SECONDS: Final = 0.5


class ImportWatch:
    """A watchdog thread that warns about plugins whose import is slow.

    The thread runs while the context manager :meth:`running` is open.
    """

    def __init__(self) -> None:
        # The plugin whose import is in progress, and the monotonic time at which the import began.
        self._importing: tuple[Candidate, float] | None = None
        self._has_ended = threading.Event()  # set at the end of running()

    @contextmanager
    def running(self) -> Generator[None]:
        """Watch the imports that :meth:`importing` announces."""
        thread = threading.Thread(target=self._warn_when_slow, name="delf-imports", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._has_ended.set()
            thread.join()  # forking is only safe without threads

    def importing(self, plugin: Candidate) -> None:
        """Start the timer for the import of a plugin; the timer of an earlier import stops."""
        self._importing = plugin, time.monotonic()

    def _warn_when_slow(self) -> None:
        """Log a warning about each slow import, until :meth:`running` ends."""
        reported_plugin: Candidate | None = None
        while not self._has_ended.wait(LOOK_SECONDS):
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
    """Log a warning if the block, which imports a plugin's code, takes too long.

    Args:
        plugin: The plugin; None disables the warning.
    """
    if plugin is None:
        yield
        return
    watch = ImportWatch()
    watch.importing(plugin)
    with watch.running():
        yield
