"""Output files received from a guest chunk by chunk, within limits."""

from __future__ import annotations

from typing import Any, Final

from delf.machine.filenames import check_file_name
from delf.protocols.sandbox import Crashed, LimitReached, Limits, ScriptHost
from delf_sandbox.guest.limits import FileLimits
from delf_sandbox.wire import WireError, limits_by_name

_MAX_OPEN_FILES: Final = 16
_MAX_NAME_LENGTH: Final = 1000


class IncomingFiles:
    """Receives the output files of a session from its guest, chunk by chunk.

    Args:
        limits: The limits of the session.
    """

    def __init__(self, limits: Limits) -> None:
        self._open: dict[str, bytearray] = {}
        self._limits = FileLimits(limits_by_name(limits))

    def begin_script(self) -> None:
        """Discard the incomplete files of the previous script."""
        self._open.clear()

    def receive(self, frame: list[Any], host: ScriptHost) -> LimitReached | Crashed | None:
        """Add the chunk of a ``file`` or ``rows`` frame to its file.

        After the last chunk, the file is passed to the host.

        Returns:
            The outcome that ends the session if the file was refused, else None.

        Raises:
            WireError: If the frame is malformed, or too many files are incomplete.
        """
        match frame:
            case [str(kind), str(name), bool(last), bytes(chunk)] if len(name) <= _MAX_NAME_LENGTH:
                pass
            case _:
                raise WireError("the sandbox sent a malformed file")
        content = self._open.setdefault(name, bytearray())
        content += chunk
        excess = self._limits.count_chunk(name, len(content), len(chunk), complete=last)
        if excess is not None:
            return LimitReached(limit="file", message=excess)
        if len(self._open) > _MAX_OPEN_FILES:
            raise WireError("the sandbox has too many output files open")
        if not last:
            return None
        del self._open[name]
        write = host.wrote_rows if kind == "rows" else host.wrote_file
        try:
            write(check_file_name(name), bytes(content))
        except (ValueError, OSError) as error:
            message = f"output file {name[:80]!r} was refused: {error}"
            return Crashed(message=message, by_script=True)
        return None
