"""A notice that is shown once on a machine, and not at each run."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from delf.errors import DelfError
from delf.machine.own_files import read_own, write_own

_log = logging.getLogger(__name__)


class Notice:
    """A text that a user has to read once.

    If that cannot be remembered, each agent shows the text once.

    Args:
        text: The text; None where there is nothing to tell.
        folder: The user's data folder.
    """

    def __init__(self, text: str | None, folder: Path) -> None:
        self._text = text
        digest = "" if text is None else hashlib.sha256(text.encode()).hexdigest()
        self._file = folder / "notices" / digest
        self.is_new = text is not None and read_own(self._file) is None
        """True if the notice was never shown on this machine."""

    def take(self) -> tuple[str, ...]:
        """Return the text the first time, and remember that it was shown."""
        if not self.is_new or self._text is None:
            return ()
        self.is_new = False
        try:
            write_own(self._file, self._text)
        except (OSError, DelfError) as error:
            _log.debug("a notice cannot be remembered: %s", error)
        return (self._text,)
