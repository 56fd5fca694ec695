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
from delf.machine.folders import user_folder
from delf.machine.own_files import write_private

_RECORD_SECONDS: Final = 120.0


class FailedBuilds:
    """A record of the builds that failed in the last two minutes, for all processes of a user.

    Args:
        folder: The folder of the record; in the user's cache folder when None.
        clock: Returns the Unix time in seconds.
    """

    def __init__(self, folder: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock

    def check(self, inputs: Sequence[str]) -> None:
        """Raise the stored error if the same build failed in the last two minutes.

        Args:
            inputs: Texts that identify the build: the engine, the image and its sources.

        Raises:
            SandboxUnavailableError: If the same build failed; the hint says when a task tries
                again.
        """
        path = self._path(inputs)
        try:
            stored: Any = json.loads(path.read_text(encoding="utf-8"))
            remaining_seconds = float(stored["at"]) + _RECORD_SECONDS - self._clock()
            message = str(stored["message"])
            hint = str(stored["hint"])
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return  # no readable record: build
        # Delete an expired record, or one that lasts too long because the clock was set back.
        if not 0 < remaining_seconds <= _RECORD_SECONDS:
            with suppress(OSError):
                path.unlink()
            return
        again = f"a task tries again in {remaining_seconds:.0f} s"
        hint = f"{hint}; {again}" if hint else again
        raise SandboxUnavailableError(message, hint=hint)

    def record(self, inputs: Sequence[str], error: SandboxUnavailableError) -> None:
        """Store the error of a failed build.

        If the error cannot be stored, the next task builds again.

        Args:
            inputs: As in :meth:`check`.
            error: The error of the build.
        """
        stored = {"at": self._clock(), "message": error.message, "hint": error.hint or ""}
        with suppress(OSError):
            write_private(self._path(inputs), json.dumps(stored).encode())

    def _path(self, inputs: Sequence[str]) -> Path:
        if self._folder is None:
            self._folder = user_folder("cache") / "failed-builds"
        digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()
        return self._folder / f"{digest[:32]}.json"
