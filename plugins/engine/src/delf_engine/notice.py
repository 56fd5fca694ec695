"""A notice that is shown once on a machine."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from delf.errors import DelfError
from delf.machine.own_files import read_private, write_private_text

_log = logging.getLogger(__name__)


class Notice:
    """A text that is shown to the user only once.

    If the data folder is not writable, each agent shows the text once.

    Args:
        text: The text; None for no text.
        folder: The user's data folder.
    """

    def __init__(self, text: str | None, folder: Path) -> None:
        self._text = text
        digest = "" if text is None else hashlib.sha256(text.encode()).hexdigest()
        self._file = folder / "notices" / digest
        self.is_new = text is not None and read_private(self._file) is None
        """True if the notice was not shown on this machine before."""

    def take(self) -> tuple[str, ...]:
        """Return a tuple with the text, and record on this machine that the text was shown.

        The tuple is empty if the text was shown before.
        """
        if not self.is_new or self._text is None:
            return ()
        self.is_new = False
        try:
            write_private_text(self._file, self._text)
        except (OSError, DelfError) as error:
            _log.debug("a notice cannot be remembered: %s", error)
        return (self._text,)
