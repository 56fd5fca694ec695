"""Limits on a guest's messages, which protect the host's CPU and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.protocols.sandbox import LimitReached, Limits
from delf_sandbox.wire import WireError

_MAX_READINGS: Final = 2000
_MAX_TURNS: Final = 20_000
SPARE_FRAMES: Final = 1_000_000
"""The number of frames allowed in one script in addition to its calls."""
_FRAMES_OF_A_CALL: Final = 4
CALL_BYTES: Final = 2**30
"""The memory in bytes for the arguments of a task's calls, which its trace keeps."""
_IDLE_BYTES: Final = 2_000_000
"""The bytes that a guest may send while no script runs."""
SPARE_BYTES: Final = 8_000_000
"""Spare bytes in the frames of one script, for names and other small values."""
_BYTES_OF_A_CANCEL: Final = 64
_BYTES_OF_A_LETTER: Final = 6
_BYTES_OF_A_BYTE: Final = 1.4
_SLACK: Final = 1.25
"""The tolerance above the output limit, which the guest itself enforces first."""


class Budget:
    """Counts a guest's messages and raises beyond the limits.

    Args:
        limits: The limits of the session.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._calls = 0
        self._call_bytes = 0
        self._frames = self._printed = self._readings = self._turns = self._bytes = 0
        self._max_frames = SPARE_FRAMES + _FRAMES_OF_A_CALL * limits.calls
        self._max_bytes = _IDLE_BYTES
        self._script_bytes = (
            SPARE_BYTES
            + _BYTES_OF_A_CANCEL * limits.calls
            + _BYTES_OF_A_LETTER * _SLACK * limits.output_bytes
            + _BYTES_OF_A_BYTE * limits.total_file_bytes
            + limits.frame_bytes
        )
        self.unread_bytes: Final = max(limits.memory_bytes, 2 * limits.frame_bytes)
        """The maximum number of bytes buffered in the host for the guest and its open calls."""

    def begin_script(self) -> None:
        """Reset the counts that apply to each script."""
        self._frames = self._printed = self._readings = self._turns = self._bytes = 0
        self._max_bytes = self._script_bytes

    def end_script(self) -> None:
        """Allow almost no messages until the next script."""
        self._bytes = 0
        self._max_bytes = _IDLE_BYTES

    def count_frame(self, length: int) -> None:
        """Count a frame of any kind. Calls are counted separately, by :meth:`count_call`.

        Args:
            length: The size in bytes.

        Raises:
            WireError: If the limit of frames or bytes is exceeded.
        """
        self._frames += 1
        self._bytes += length
        if self._frames > self._max_frames or self._bytes > self._max_bytes:
            raise WireError(
                "the sandbox sent too many messages, or too much data, besides its calls"
            )

    def printed(self, text: str) -> LimitReached | None:
        """Count printed text; return the limit if the script must stop."""
        self._printed += len(text) or 1  # an empty print counts as one character
        limit = self._limits.output_bytes
        if self._printed <= limit * _SLACK:
            return None
        message = f"the script printed more than {limit:,} characters"
        return LimitReached(limit="output", message=message)

    def count_clock_reads(self, readings: Sequence[int]) -> None:
        """Count clock reads of the script.

        Raises:
            WireError: If there are too many.
        """
        self._readings += len(readings)
        if self._readings > _MAX_READINGS:
            raise WireError("the sandbox asked for the time too often")

    def count_turns(self, turns: Sequence[int]) -> None:
        """Count recorded turns of the script's event loop.

        Raises:
            WireError: If there are too many.
        """
        self._turns += len(turns)
        if self._turns > _MAX_TURNS:
            raise WireError("the sandbox noted too many turns")

    def count_call(self, length: int, size: int) -> LimitReached | None:
        """Count a call; return the limit if the call must be refused.

        Args:
            length: The frame's size in bytes.
            size: The size in memory, in bytes.
        """
        # Calls have separate limits, so their frames do not count as bytes of the script.
        self._bytes -= length
        self._calls += 1
        self._call_bytes += size
        if self._calls > self._limits.calls:
            message = f"a task can make {self._limits.calls:,} tool calls"
            return LimitReached(limit="calls", message=message)
        if self._call_bytes > CALL_BYTES:
            message = "the arguments of all tool calls of a task take more than "
            message += f"{CALL_BYTES:,} bytes of memory"
            return LimitReached(limit="calls", message=message)
        return None
