"""A session with the guest over two byte streams, shared by every CPython backend."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from delf.errors import SandboxUnavailableError
from delf.protocols.sandbox import (
    CallAnswer,
    CallRequest,
    Crashed,
    LimitReached,
    Limits,
    Outcome,
    Raised,
    ScriptHost,
    SessionSpec,
    check_script,
)
from delf_sandbox.budget import Budget
from delf_sandbox.calls import OpenCalls
from delf_sandbox.guest.frames import FrameReader, FrameTooLargeError
from delf_sandbox.incoming import IncomingFiles
from delf_sandbox.process import GuestProcess
from delf_sandbox.wire import (
    WireError,
    answer_frame,
    exec_frame,
    init_frame,
    parse,
    parse_call,
    parse_numbers,
    parse_outcome,
    size_in_memory,
)

_log = logging.getLogger(__name__)

_READ_SIZE = 64 * 1024
# The maximum number of bytes of a read, except within a large frame.
#
# This is about twenty calls. If a thousand calls were read and started in one turn of the loop,
# each of them would take longer.
_SMALL_READ_SIZE = 2 * 1024
# The maximum size of a frame that is parsed in the event loop; larger ones use a thread.
_MAX_INLINE_BYTES = 128 * 1024

_MAX_REFUSAL_BYTES = 2**20


class WireSession(asyncio.BufferedProtocol):
    """A :class:`delf.protocols.sandbox.SandboxSession` with a guest over an asyncio transport.

    A backend connects this protocol to the guest's streams, then calls :meth:`ready` and
    :meth:`initialise`. Sockets are read into a reused buffer, because allocating a buffer for each
    read takes longer than a call. Other transports call :meth:`data_received`.

    Args:
        process: The process of the guest.
        frame_bytes: The maximum number of bytes of a frame before :meth:`initialise`.
    """

    def __init__(self, process: GuestProcess, frame_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._process = process
        self._reader = FrameReader(frame_bytes)
        self._buffer = memoryview(bytearray(_READ_SIZE))
        self._transport: asyncio.Transport | None = None
        # Done once the guest is ready, or gone.
        self._booted: asyncio.Future[None] = loop.create_future()
        # The outcome and the host of the running script; None between scripts.
        self._outcome: asyncio.Future[Outcome] | None = None
        self._host: ScriptHost | None = None
        self._spec: SessionSpec | None = None  # set by initialise()
        self.calls = OpenCalls(loop, self._answer)
        # The parts of frames that _flush() will send together.
        self._unsent_parts: list[bytes] = []
        # Output files that arrive in chunks. initialise() sets the limits of the session.
        self._files = IncomingFiles(Limits())
        self._budget = Budget(Limits())
        self._script_count = 0
        # True if the guest is gone, or was killed because of a limit or a violation.
        self._is_lost = False
        # True after aclose().
        self._is_closed = False
        self.is_paused = False
        self._is_handling_payloads = False
        # The payloads of received frames that still have to be parsed and handled, in order.
        self._unparsed_payloads: deque[bytes] = deque()
        # The large frame that a thread parses at present.
        self._parsing: asyncio.Future[_ParsedFrame] | None = None

    # -- asyncio.BufferedProtocol -------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the connected streams."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read: large within a large frame, otherwise small."""
        is_within_large_frame = self._reader.pending >= _SMALL_READ_SIZE
        if is_within_large_frame:
            return self._buffer
        # A large read could hold hundreds of calls. All would start before the first one can go on.
        return self._buffer[:_SMALL_READ_SIZE]

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes that were read into the buffer."""
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Split received bytes into frames, and handle the frames."""
        try:
            # Queue the frames, because frames after a large one must wait until that one is parsed.
            self._unparsed_payloads.extend(self._reader.feed(data))
        except FrameTooLargeError as error:
            self._abort(LimitReached(limit="frame", message=f"the sandbox sent {error}"))
            return
        self._handle_payloads()

    def _handle_payloads(self) -> None:
        """Handle the received frames in order.

        At a large frame, the handling pauses until a thread has parsed the frame.
        """
        if self._parsing is not None:
            return
        self._is_handling_payloads = True
        try:
            while self._unparsed_payloads and self.alive:
                payload = self._unparsed_payloads.popleft()
                # Count a frame before parsing it, so that a flood of frames is stopped cheaply.
                self._budget.count_frame(len(payload))
                # A large frame is parsed in a thread; later frames wait, which keeps their order.
                if len(payload) > _MAX_INLINE_BYTES:
                    self._parsing = self._loop.run_in_executor(None, _parse_and_measure, payload)
                    self._parsing.add_done_callback(self._handle_parsed)
                    self._pause_reading()
                    break
                self._handle(parse(payload), payload)
        except Exception as error:
            self._abort(_crash_of(error))
        finally:
            self._is_handling_payloads = False
            self._flush()

    def _handle_parsed(self, parsing: asyncio.Future[_ParsedFrame]) -> None:
        """Handle a large frame that a thread has parsed, then the frames after this one."""
        self._parsing = None
        if not self.alive:
            return
        try:
            parsed = parsing.result()
            self._handle(parsed.frame, parsed.payload, parsed.memory_size)
        except Exception as error:
            self._abort(_crash_of(error))
        self._resume_if_possible()
        self._handle_payloads()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the calls, and end the running script.

        The script's outcome states how the process ended.
        """
        self._is_lost = True
        # This wakes ready(), which then asks how the process ended.
        if not self._booted.done():
            self._booted.set_result(None)
        self.calls.clear()
        if self._outcome is not None and not self._outcome.done():
            outcome = self._outcome
            # The exit status, which distinguishes a reached limit from a crash, comes after the
            # end of the stream.
            task = self._loop.create_task(self._process.exit_outcome())
            task.add_done_callback(lambda finished: _set_outcome(finished, outcome))

    # -- SandboxSession -----------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True if the session can run another script."""
        return not self._is_lost and not self._is_closed

    @property
    def cpu_seconds(self) -> float:
        """The processor seconds of the guest, known once the session is closed."""
        return self._process.cpu_seconds

    async def ready(self, timeout: float) -> None:
        """Wait until the guest has started.

        Args:
            timeout: The maximum number of seconds to wait.

        Raises:
            SandboxUnavailableError: If the guest did not start; the message has the reason.
        """
        try:
            async with asyncio.timeout(timeout):
                # The timeout of one caller must not cancel the future for other callers.
                await asyncio.shield(self._booted)
        except TimeoutError:
            self._process.kill()
            raise SandboxUnavailableError(
                f"the sandbox did not start within {timeout:g} s"
            ) from None
        if self._is_lost:
            outcome = await self._process.exit_outcome()
            reason = getattr(outcome, "message", outcome)  # some outcomes have no message
            raise SandboxUnavailableError(f"the sandbox did not start: {reason}")

    def initialise(
        self,
        spec: SessionSpec,
        scratch: str,
        readable: Sequence[str] = (),
        links: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Send the guest its tools, modules and limits.

        Args:
            spec: The session's specification.
            scratch: The path inside the sandbox of the folder in which scripts may write.
            readable: Further paths inside the sandbox that scripts may read.
            links: The paths of input files inside the sandbox, by their names for scripts. In the
                scratch folder, a link with each name leads to the file.
        """
        self._spec = spec
        # The session was started before the limits of its task were known. The old reader holds no
        # part of a frame, because a guest sends nothing between ``ready`` and its first script.
        self._reader = FrameReader(spec.limits.frame_bytes)
        self._budget = Budget(spec.limits)
        self._files = IncomingFiles(spec.limits)
        self._write(init_frame(spec, scratch, readable, links))

    async def execute(self, code: str, host: ScriptHost) -> Outcome:
        """Run a script and return its outcome; ``host`` makes the script's calls."""
        if self._spec is None or self._outcome is not None:
            raise RuntimeError("a session runs one script at a time, after initialise()")
        if not self.alive:
            return Crashed(message="the sandbox is gone")
        if (too_long := check_script(code)) is not None:
            return too_long
        self._script_count += 1
        self._budget.begin_script()
        self._files.begin_script()
        self._host = host
        outcome = self._loop.create_future()
        self._outcome = outcome
        try:
            limit = self._spec.limits.frame_bytes
            self._write(exec_frame(self._script_count, code, limit, host.script_start))
            return await outcome
        except FrameTooLargeError as error:
            return LimitReached(limit="frame", message=f"the script is too long: {error}")
        except asyncio.CancelledError:
            self.kill()  # the guest cannot stop one script
            raise
        finally:
            # After an outcome, _finish() has done most of this. After a cancellation or an error,
            # nobody has called it.
            self._host = None
            self._outcome = None
            self._budget.end_script()
            self.calls.clear()

    def kill(self) -> None:
        """Kill the guest, and cancel its calls in flight."""
        self._process.kill()
        self.calls.clear()
        self._unsent_parts.clear()
        if self._transport is not None:
            # close() would first send the buffered answers, to a guest that reads nothing.
            self._transport.abort()

    async def aclose(self) -> None:
        """Kill the guest and release all resources. Idempotent."""
        # Set this first, so that frames that still arrive find the session closed.
        self._is_closed = True
        self.kill()
        await self._process.aclose()

    # -- frames -------------------------------------------------------------------------

    def _handle(self, frame: list[Any], payload: bytes, size: int | None = None) -> None:
        """Handle a frame of the guest.

        Args:
            frame: The parsed frame.
            payload: The payload from which the frame was parsed.
            size: The size of the frame in memory, if known.
        """
        match frame:
            case ["call", *_]:
                if size is None:
                    size = size_in_memory(payload)
                self._start_call(parse_call(frame), len(payload), size)
            case ["cancel", int(call_id)]:
                if self._host is not None:
                    self._host.abandon(call_id)
                self.calls.abandon(call_id)
            case ["print", *_]:
                self._handle_print(frame)
            case ["file" | "rows", *_]:
                self._handle_file_chunk(frame)
            # A replay of the script repeats the clock reads, and the events ("turns") of the loop.
            case ["clock", *_]:
                self._handle_clock_reads(parse_numbers(frame))
            case ["turns", *_]:
                self._handle_loop_iterations(parse_numbers(frame))
            case ["ready"]:
                if not self._booted.done():
                    self._booted.set_result(None)
            case ["done" | "failed" | "limit" | "rerun", *_]:
                self._finish(parse_outcome(frame))
            case _:
                raise WireError(f"the sandbox sent an unknown frame {frame[0][:40]!r}")

    def _finish(self, outcome: Outcome) -> None:
        """End the running script, if any, with an outcome."""
        if self._host is not None:
            self._host = None  # ignore frames after the script's end
            self._budget.end_script()
            self.calls.skip_queued_calls()
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)

    def _abort(self, outcome: Outcome) -> None:
        """Kill the guest, and end the running script with an outcome that explains why."""
        self._finish(outcome)
        self._is_lost = True
        self.kill()

    def _handle_print(self, frame: list[Any]) -> None:
        if len(frame) != 2 or not isinstance(frame[1], str):
            raise WireError("the sandbox sent a malformed print")
        if self._host is None or self._spec is None:
            return
        exceeded_limit = self._budget.count_printed_text(frame[1])
        if exceeded_limit is not None:
            self._abort(exceeded_limit)
        else:
            self._host.printed(frame[1])

    def _handle_clock_reads(self, readings: list[int]) -> None:
        self._budget.count_clock_reads(readings)
        if self._host is not None:
            self._host.clock_read(readings)

    def _handle_loop_iterations(self, iterations_and_events: list[int]) -> None:
        # The list alternates between the number of an iteration ("turn") of the script's event loop
        # and an event that occurred in this iteration.
        if len(iterations_and_events) % 2:
            raise WireError("the sandbox sent a turn of its event loop without an event")
        self._budget.count_loop_events(iterations_and_events)
        if self._host is not None:
            self._host.turns_taken(iterations_and_events)

    def _handle_file_chunk(self, frame: list[Any]) -> None:
        if self._host is None or self._spec is None:
            return
        outcome = self._files.receive(frame, self._host)
        if outcome is not None:
            self._abort(outcome)

    # -- calls --------------------------------------------------------------------------

    def _start_call(self, request: CallRequest, frame_bytes: int, memory_bytes: int) -> None:
        """Begin a call of the guest.

        If the open calls take too much memory, pause reading from the guest until calls end.

        Args:
            request: The call.
            frame_bytes: The size of the call's frame on the wire.
            memory_bytes: The size of the call's arguments in memory.
        """
        if self._host is None:
            # Answer the call, because a coroutine that a script left behind must not wait forever.
            refusal = Raised("ToolError", "the script is over; no call can be made any more")
            self._write(*answer_frame(request.call_id, refusal, _MAX_REFUSAL_BYTES))
            return
        outcome = self._budget.count_call(frame_bytes, memory_bytes)
        if outcome is not None:
            self._abort(outcome)
            return
        self.calls.begin(self._host, request, memory_bytes)
        # Back pressure: the guest blocks on its pipe until calls have ended, so that a script
        # cannot fill the host's memory with calls.
        if self.calls.held_bytes > self._budget.max_held_bytes:
            self.calls.on_call_end = self._resume_if_possible
            self._pause_reading()

    def _answer(self, number: int, answer: CallAnswer) -> None:
        if self._spec is not None:
            self._write(*answer_frame(number, answer, self._spec.limits.frame_bytes))

    def process_ended(self) -> None:
        """Resume reading, so that the last output of the ended process is read."""
        self._resume()

    def _pause_reading(self) -> None:
        """Pause reading from the guest; :meth:`_resume_if_possible` resumes it."""
        if self.is_paused or self._transport is None or self._transport.is_closing():
            return
        self.is_paused = True
        self._transport.pause_reading()

    def _resume_if_possible(self) -> None:
        """Resume reading from the guest, unless a reason for the pause remains.

        The reasons are a large frame that a thread parses, and open calls that take too much
        memory.
        """
        if self._parsing is None and self.calls.held_bytes <= self._budget.max_held_bytes:
            self._resume()

    def _resume(self) -> None:
        """Resume reading from the guest, if it is paused."""
        self.calls.on_call_end = None  # it was set to resume reading at the end of a call
        if self.is_paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self.is_paused = False

    def _write(self, *parts: bytes) -> None:
        """Send the parts of a frame to the guest.

        While calls are open, frames are collected and sent together at the next iteration of the
        event loop.
        """
        if self._is_lost:
            return
        is_first_unsent = not self._unsent_parts
        self._unsent_parts += parts
        if self._is_handling_payloads:  # _handle_payloads() flushes at its end
            return
        if not self.calls.open:
            self._flush()
        elif is_first_unsent:  # the flush that is scheduled here also sends the later parts
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        data = b"".join(self._unsent_parts)
        self._unsent_parts.clear()
        transport = self._transport
        if not data or transport is None or transport.is_closing():
            return
        transport.write(data)
        # Unread answers would fill the host's memory.
        if transport.get_write_buffer_size() > self._budget.max_held_bytes:
            message = "the script left more answers unread than its memory could hold"
            self._abort(LimitReached(limit="memory", message=message))


class _ParsedFrame(NamedTuple):
    frame: list[Any]
    payload: bytes
    memory_size: int
    """The size of the frame in memory, in bytes."""


def _parse_and_measure(payload: bytes) -> _ParsedFrame:
    return _ParsedFrame(parse(payload), payload, size_in_memory(payload))


def _crash_of(error: Exception) -> Crashed:
    """Return the outcome of a script after the host failed to handle a frame from its sandbox.

    A frame is a message between host and sandbox.
    """
    if isinstance(error, WireError):
        return Crashed(message=error.message, by_script=True)
    _log.error("a frame of the sandbox could not be handled", exc_info=error)
    # The script must not run again in another sandbox, where the same frame would fail again.
    return Crashed(message=f"a frame could not be handled: {error}", by_script=True)


def _set_outcome(finished: asyncio.Task[Outcome], outcome: asyncio.Future[Outcome]) -> None:
    if outcome.done():
        return
    if finished.cancelled() or finished.exception() is not None:
        outcome.set_result(Crashed(message="the sandbox ended unexpectedly"))
    else:
        outcome.set_result(finished.result())
