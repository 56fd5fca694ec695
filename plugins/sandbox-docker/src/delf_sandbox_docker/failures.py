"""Cache of failed builds, so that not every task waits for the same failure."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from delf.errors import SandboxUnavailableError
from delf.machine.own_files import write_private

_SECONDS: Final = 120.0


class FailedBuilds:
    """The builds that failed lately, for all processes of this user.

    Args:
        folder: The cache folder; in the user's cache when omitted.
        clock: Returns the Unix time in seconds.
    """

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock

    def check(self, about: Sequence[str]) -> None:
        """Refuse a build that failed lately.

        Args:
            about: The engine, the image, and the image's sources.

        Raises:
            SandboxUnavailableError: If the same build failed recently; the error says how to try
                again.
        """
        path = self._path(about)
        try:
            stored: Any = json.loads(path.read_text(encoding="utf-8"))
            remaining_seconds = float(stored["at"]) + _SECONDS - self._clock()
            message, hint = str(stored["message"]), str(stored["hint"])
        except (OSError, ValueError, TypeError, KeyError):
            return  # no readable record: build
        if not 0 < remaining_seconds <= _SECONDS:
            with suppress(OSError):
                path.unlink()
            return
        again = f"a task tries again in {remaining_seconds:.0f} s"
        raise SandboxUnavailableError(message, hint=f"{hint}; {again}" if hint else again)

    def keep(self, about: Sequence[str], error: SandboxUnavailableError) -> None:
        """Store a failure; if that is impossible, the next task builds again.

        Args:
            about: Like for :meth:`check`.
            error: The failure.
        """
        stored = {"at": self._clock(), "message": error.message, "hint": error.hint or ""}
        with suppress(OSError):
            write_private(self._path(about), json.dumps(stored).encode())

    def _path(self, about: Sequence[str]) -> Path:
        if self._folder is None:
            from platformdirs import user_cache_path

            self._folder = user_cache_path("delf") / "failed-builds"
        digest = hashlib.sha256("\0".join(about).encode()).hexdigest()
        return self._folder / f"{digest[:32]}.json"
