"""Limits on a guest's messages, which protect the host's CPU and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delf.protocols.sandbox import LimitReached, Limits
from delf_sandbox.guest.limits import PrintLimits
from delf_sandbox.wire import WireError, limits_by_name

_MAX_CLOCK_READS: Final = 2000
_MAX_LOOP_EVENTS: Final = 10_000
SPARE_MESSAGES: Final = 1_000_000
"""The number of wire protocol frames that a script may send besides those of its calls."""
_MESSAGES_PER_CALL: Final = 4
CALL_BYTES: Final = 2**30
"""The maximum size in memory, in bytes, of the arguments of all calls of a task.

The task's trace keeps these arguments until the task ends.
"""
# The maximum number of bytes that a guest may send between two scripts.
_MAX_BYTES_BETWEEN_SCRIPTS: Final = 2_000_000
SPARE_BYTES: Final = 8_000_000
"""The bytes of messages allowed for one script, in addition to its output, files and calls."""
_BYTES_PER_CANCELLATION: Final = 64
_BYTES_PER_PRINTED_CHARACTER: Final = 6
_BYTES_PER_FILE_BYTE: Final = 1.4


class Budget:
    """Counts the messages of a guest, the process that runs the scripts of one session.

    The methods that count printed text and calls return the limit that was exceeded. The methods
    that count other messages raise :class:`WireError`.

    Args:
        limits: The limits of the session.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._call_count = 0
        self._call_bytes = 0
        self._message_count = 0
        self._printed_text = PrintLimits(limits_by_name(limits))
        self._clock_read_count = 0
        self._loop_event_count = 0
        self._byte_count = 0
        self._max_messages = SPARE_MESSAGES + _MESSAGES_PER_CALL * limits.calls
        # The limit for frames other than calls; begin_script() sets the higher limit of a script.
        self._max_bytes = _MAX_BYTES_BETWEEN_SCRIPTS
        self._max_script_bytes = (
            SPARE_BYTES
            + _BYTES_PER_CANCELLATION * limits.calls
            + _BYTES_PER_PRINTED_CHARACTER * limits.output_bytes
            + _BYTES_PER_FILE_BYTE * limits.total_file_bytes
            # For the frame of one call, whose bytes count here until count_call() subtracts them.
            + limits.frame_bytes
        )
        # At least two frames, even with a low memory limit: an answer of the largest allowed size
        # may arrive while another answer is unread.
        self.max_held_bytes: Final = max(limits.memory_bytes, 2 * limits.frame_bytes)
        """The maximum number of bytes that the host holds for the guest: unread data and open
        calls.
        """

    def begin_script(self) -> None:
        """Reset the counts that apply to each script."""
        self._message_count = 0
        self._printed_text.begin_script()
        self._clock_read_count = 0
        self._loop_event_count = 0
        self._byte_count = 0
        self._max_bytes = self._max_script_bytes  # between scripts, the limit is lower

    def end_script(self) -> None:
        """Lower the limit on received bytes until the next script begins."""
        self._byte_count = 0
        self._max_bytes = _MAX_BYTES_BETWEEN_SCRIPTS

    def count_frame(self, length: int) -> None:
        """Count a frame of any kind.

        For a call, :meth:`count_call` subtracts the bytes again, because calls have their own
        limit.

        Args:
            length: The frame's size in bytes.

        Raises:
            WireError: If the script sent too many frames or too many bytes.
        """
        self._message_count += 1
        self._byte_count += length
        if self._message_count > self._max_messages or self._byte_count > self._max_bytes:
            raise WireError(
                "the sandbox sent too many messages, or too much data, besides its calls"
            )

    def count_printed_text(self, text: str) -> LimitReached | None:
        """Count printed text; return the output limit if the script exceeded it, else None."""
        message = self._printed_text.count_text(text)
        return None if message is None else LimitReached(limit="output", message=message)

    def count_clock_reads(self, readings: Sequence[int]) -> None:
        """Count the script's reads of a clock, which the guest reports for replay.

        Raises:
            WireError: If the script read the clock too often.
        """
        self._clock_read_count += len(readings)
        if self._clock_read_count > _MAX_CLOCK_READS:
            raise WireError("the sandbox asked for the time too often")

    def count_loop_events(self, iterations_and_events: Sequence[int]) -> None:
        """Count events of the guest's event loop, which the guest reports for replay.

        Args:
            iterations_and_events: Two numbers for each event: the number of the iteration in which
                the loop handled the event, then the event as in
                :meth:`delf.protocols.sandbox.ScriptHost.turns_taken`.

        Raises:
            WireError: If the guest reported too many events.
        """
        self._loop_event_count += len(iterations_and_events) // 2
        if self._loop_event_count > _MAX_LOOP_EVENTS:
            raise WireError("the sandbox reported too many events of its event loop")

    def count_call(self, length: int, size: int) -> LimitReached | None:
        """Count a tool call. Return the exceeded limit if the call must be refused, else None.

        Args:
            length: The size of the call's frame on the wire, in bytes.
            size: The size of the call's arguments in memory, in bytes.
        """
        # count_frame() has counted the frame's bytes, but calls have separate limits.
        self._byte_count -= length
        self._call_count += 1
        self._call_bytes += size
        if self._call_count > self._limits.calls:
            message = f"a task can make {self._limits.calls:,} tool calls"
            return LimitReached(limit="calls", message=message)
        if self._call_bytes > CALL_BYTES:
            message = "the arguments of all tool calls of a task take more than "
            message += f"{CALL_BYTES:,} bytes of memory"
            return LimitReached(limit="calls", message=message)
        return None
