"""A sandbox: where a script runs, away from the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, Final, Protocol, cast, runtime_checkable

from delf.machine.zones import Zone, local_zone
from delf.records import dataclass
from delf.types import Isolation

MAX_SCRIPT: Final = 2**17
"""Letters of a script; the longest that models write have some ten thousand."""
MAX_MESSAGE: Final = 4096
"""The most characters of an error message from a sandbox."""
MAX_TEXT: Final = 20_000
"""The most characters of text that a script passes to the next script."""
MAX_NAME: Final = 200
"""The most characters of a name from a sandbox."""
_MAX_VARIABLES: Final = 100


def _cut(outcome: Any, **most: int) -> None:
    """Truncate text of a sandbox before it goes into prompts, events and logs.

    Args:
        outcome: How a script ended, or a call.
        most: How many letters each of its fields may have.
    """
    for name, letters in most.items():
        value = getattr(outcome, name)
        if isinstance(value, str):
            object.__setattr__(outcome, name, _short(value, letters))
    variables = cast("Mapping[object, object] | None", getattr(outcome, "variables", None))
    if variables:
        first = islice(variables.items(), _MAX_VARIABLES)
        kept = {
            _short(str(name), MAX_NAME): _short(str(kind), 2 * MAX_NAME) for name, kind in first
        }
        object.__setattr__(outcome, "variables", kept)


def _short(text: str, most: int) -> str:
    """Return a text that is not too long, and can be written as UTF-8."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    try:
        short.encode()
    except UnicodeEncodeError:  # halves of characters
        return short.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return short


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one session. A breach ends the script with a clear error.

    A task has one session; after a breach another session gets the remaining processor time, output
    files and calls.

    Args:
        cpu_seconds: Processor time of the whole session.
        memory_bytes: Address space of the script's process.
        output_bytes: Text printed by one script.
        file_bytes: Size of one output file, and of each file written to scratch space.
        total_file_bytes: All output files of a session together.
        frame_bytes: Size of one message on the wire: a call's arguments or result.
        open_files: File descriptors.
        processes: Processes beside the script's own.
        scratch_bytes: All files in scratch space together.
        calls: Tool calls of a session, so that a script which only calls has an end, too.
    """

    cpu_seconds: float = 60.0
    memory_bytes: int = 512 * 1024 * 1024
    output_bytes: int = 10 * 1024 * 1024
    file_bytes: int = 50 * 1024 * 1024
    total_file_bytes: int = 200 * 1024 * 1024
    frame_bytes: int = 64 * 1024 * 1024
    open_files: int = 64
    processes: int = 0
    scratch_bytes: int = 50 * 1024 * 1024
    calls: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNames:
    """The names of one connection in a script.

    Args:
        name: The variable's name.
        methods: Its methods; empty when the connection itself is called.
        changing: The names that change something; ``""`` if the connection itself does.
    """

    name: str
    methods: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """The specification of a session.

    Args:
        tools: The callable tools.
        modules: Importable top-level modules; harmless standard modules and the libraries when
            None.
        libraries: Third-party packages that it may import, by their distribution's name.
        limits: The limits of the session.
        files: Input files that it may read, as absolute paths of the host.
        row_files: Endings of output files that the host makes from rows, as ``.rows``.
        zone: The time zone of its clock.
    """

    tools: tuple[ToolNames, ...]
    modules: tuple[str, ...] | None = None
    libraries: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    files: tuple[str, ...] = ()
    row_files: tuple[str, ...] = ()
    zone: Zone = field(default_factory=local_zone)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """A call that a script makes, unchecked: every field is the script's claim.

    Args:
        call_id: Its number in the session.
        connection: The connection's name, or the tool's.
        method: Its method; empty when the connection itself is called.
        args: Arguments by position.
        kwargs: Arguments by name.
        alone: Whether the script does nothing else before it has the answer.
        line: The line of the script that it is written on, from 1; None where that is not known.
    """

    call_id: int
    connection: str
    method: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    alone: bool = False
    line: int | None = None

    def __post_init__(self) -> None:
        _cut(self, connection=MAX_NAME, method=MAX_NAME)


@dataclass(frozen=True, slots=True)
class Returned:
    """The call's result.

    Args:
        value: The result itself.
        encoded: The same in tagged JSON, for backends that speak the wire.
    """

    value: Any
    encoded: bytes | None = field(default=None, repr=False, compare=False)


REJECTED: Final = "ApprovalRejected"
"""The exception of a call to which approval was denied."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The call raises in the script.

    Args:
        kind: The exception's name in the script: ``ToolError``, ``ToolException``,
            ``ToolNotAllowed``, ``ApprovalRejected`` or ``ToolArgumentError``.
        message: The message for the script and the model.
        cause: The exception of the tool on the host.
        can_retry: Whether another script could do better.
        http_status: The HTTP status of the answer that failed; the script reads it as ``status``.
    """

    kind: str
    message: str
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    can_retry: bool = field(default=True, compare=False)
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The call returns a tool's own error message as text (``handle_error``)."""

    message: str


CallAnswer = Returned | Raised | ToolMessage


class ScriptHost(Protocol):
    """The functions that a session calls while a script runs, on the host's event loop."""

    async def call(self, request: CallRequest) -> CallAnswer:
        """Make a call on the script's behalf.

        Cancelled when the sandbox is gone, or after :meth:`SupportsReplay.abandon`.
        """
        ...

    def printed(self, text: str) -> None:
        """Note that the script printed."""
        ...

    def wrote_file(self, name: str, data: bytes) -> None:
        """Note that the script handed over a whole output file.

        Raises:
            ValueError: When the name or the size is not acceptable; the session is broken.
        """
        ...

    def wrote_rows(self, name: str, data: bytes) -> None:
        """Note that the script handed over the rows of a file that the host makes, in tagged JSON.

        Raises:
            ValueError: When the name or the rows are not acceptable; the session is broken.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStart:
    """The recorded values that make a script repeat its course.

    Args:
        seed: The seed of all random numbers.
        clock: The first clock reads: Unix times in nanoseconds. Later reads see the real time.
        turns: The moments of its answers, as passed to :meth:`SupportsReplay.turns_taken`.
    """

    seed: str = ""
    clock: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()


@runtime_checkable
class SupportsReplay(Protocol):
    """A :class:`ScriptHost` that can replay scripts in sessions that support replay."""

    @property
    def script_start(self) -> ScriptStart:
        """For the script that is about to run."""
        ...

    def clock_read(self, readings: Sequence[int]) -> None:
        """Note that the script looked at the clock, beyond ``script_start.clock``; in its order."""
        ...

    def turns_taken(self, turns: Sequence[int]) -> None:
        """In which turns of its event loop the script got answers, and timers ran out.

        Args:
            turns: Pairs: a turn, and the number of a call, counted from the script's first, or
                0 for a timer.
        """
        ...

    def abandon(self, call_id: int) -> None:
        """Record that the script stopped waiting for a call, before the call is cancelled.

        Also called for a call whose answer was sent too late.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The script came to its end.

    Args:
        value: The returned value or last expression, if it can be passed on.
        variables: The names alive afterwards, with their types.
    """

    value: Any = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _cut(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The script raised.

    Args:
        kind: The exception's type.
        message: Its message.
        line: The failing line of the script, from 1.
        source: The text of that line.
        variables: The names alive, with their types.
        call_id: The call whose failure caused the exception, by the number of its
            :class:`CallRequest`.
    """

    kind: str
    message: str
    line: int | None = None
    source: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    call_id: int | None = None

    def __post_init__(self) -> None:
        _cut(self, kind=MAX_NAME, message=MAX_MESSAGE, source=MAX_MESSAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The script asked for another pass."""

    context: str
    remaining: str
    carry: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _cut(self, context=MAX_TEXT, remaining=MAX_TEXT)
        kept = tuple(_short(str(name), MAX_NAME) for name in self.carry[:_MAX_VARIABLES])
        object.__setattr__(self, "carry", kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """The script went over a limit: ``cpu``, ``memory``, ``output``, ``file``, ``calls`` …."""

    limit: str
    message: str
    line: int | None = None
    source: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _cut(self, limit=MAX_NAME, message=MAX_MESSAGE, source=MAX_MESSAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The sandbox died or broke the protocol; the session is of no more use.

    Args:
        message: How.
        by_script: Whether the script itself ended it, as by an exit. Then it is not run again in
            another sandbox, which is done after other deaths.
    """

    message: str
    by_script: bool = False

    def __post_init__(self) -> None:
        _cut(self, message=MAX_MESSAGE)


Outcome = Done | Failed | Rerun | LimitReached | Crashed


def check_script(code: str) -> LimitReached | None:
    """Return the reason for not reading a script at all, or None.

    Args:
        code: The script.
    """
    if len(code) <= MAX_SCRIPT:
        return None
    message = f"the script has {len(code):,} letters, and at most {MAX_SCRIPT:,} are run: "
    return LimitReached(limit="script", message=message + "put data into files")


class SandboxSession(Protocol):
    """One confined interpreter for one task. Variables persist between scripts."""

    @property
    def alive(self) -> bool:
        """True if another script can run here."""
        ...

    async def execute(self, code: str, host: ScriptHost) -> Outcome:
        """Run a whole script. Cancelling kills the session and everything it started."""
        ...

    async def aclose(self) -> None:
        """Kill running scripts and release all resources. Idempotent."""
        ...


@runtime_checkable
class SupportsUsage(Protocol):
    """A session that reports its processor time, so that a task's limit covers all sessions."""

    @property
    def cpu_seconds(self) -> float:
        """The total processor time in seconds; known once the session is closed."""
        ...


@dataclass(frozen=True, slots=True)
class Available:
    """A working backend; ``detail`` has its quality."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A backend that does not work here, with the reason and a remedy."""

    reason: str
    hint: str = ""


Availability = Available | Unavailable


class SandboxBackend(Protocol):
    """A way to confine scripts."""

    isolation: Isolation

    async def available(self) -> Availability:
        """Return whether sessions can be opened on this machine. Never raises."""
        ...

    async def open(self, spec: SessionSpec) -> SandboxSession:
        """Return a fresh session that no other task has used.

        Raises:
            SandboxUnavailableError: When it is not available.
        """
        ...

    def visible_path(self, path: str) -> str:
        """Return a script's path of an input file.

        Args:
            path: Its absolute path on the host.
        """
        ...

    async def aclose(self) -> None:
        """End every session and free everything. Safe to call twice."""
        ...


@runtime_checkable
class SupportsMeasures(Protocol):
    """A backend that can measure which of its confinement works here."""

    async def measures(self) -> Mapping[str, bool]:
        """Return the measures that keep a script from the host, and whether each works here."""
        ...


@runtime_checkable
class SupportsLanguage(Protocol):
    """A backend that knows its Python version, for the prompt."""

    @property
    def language(self) -> str:
        """The Python version, as ``Python 3.12``; the same for every session."""
        ...


@runtime_checkable
class SupportsPreparation(Protocol):
    """A backend that makes something before its first session, such as an image."""

    async def prepare(self, libraries: tuple[str, ...]) -> None:
        """Prepare the backend once. No task begins and no model is asked before.

        Args:
            libraries: Third-party packages that scripts may import.

        Raises:
            SandboxUnavailableError: When it cannot be made, and why.
        """
        ...


@runtime_checkable
class SupportsWarmUp(Protocol):
    """A backend that can prepare sessions before they are asked for."""

    async def warm_up(self, spec: SessionSpec) -> None:
        """Prepare for sessions of this kind."""
        ...
