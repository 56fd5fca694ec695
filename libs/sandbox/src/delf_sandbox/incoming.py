"""Output files received from a guest chunk by chunk, within limits."""

from __future__ import annotations

from typing import Any, Final

from delf.machine.filenames import check_file_name
from delf.protocols.sandbox import Crashed, LimitReached, Limits, ScriptHost
from delf_sandbox.guest.output import FileLimits
from delf_sandbox.wire import WireError, limits_by_name

_MAX_OPEN: Final = 16
_MAX_NAME: Final = 1000


class IncomingFiles:
    """The incomplete files of one session.

    Args:
        limits: The limits of the session.
    """

    def __init__(self, limits: Limits) -> None:
        self._open: dict[str, bytearray] = {}
        self._limits = FileLimits(limits_by_name(limits))

    def begin_script(self) -> None:
        """Drop incomplete files of an earlier script."""
        self._open.clear()

    def take(self, frame: list[Any], host: ScriptHost) -> LimitReached | Crashed | None:
        """Process a ``file`` or ``rows`` frame; pass a complete file to the host.

        Returns:
            The outcome that ends the session, if any.

        Raises:
            WireError: If the frame is malformed.
        """
        match frame:
            case [str(kind), str(name), bool(last), bytes(chunk)] if len(name) <= _MAX_NAME:
                key = name
            case _:
                raise WireError("the sandbox sent a malformed file")
        content = self._open.setdefault(key, bytearray())
        content += chunk
        excess = self._limits.excess(name, len(content), len(chunk), complete=last)
        if excess is not None:
            return LimitReached(limit="file", message=excess)
        if len(self._open) > _MAX_OPEN:
            raise WireError("the sandbox has too many output files open")
        if not last:
            return None
        del self._open[key]
        pass_on = host.wrote_rows if kind == "rows" else host.wrote_file
        try:
            pass_on(check_file_name(name), bytes(content))
        except (ValueError, OSError) as error:
            message = f"output file {name[:80]!r} was refused: {error}"
            return Crashed(message=message, by_script=True)
        return None
