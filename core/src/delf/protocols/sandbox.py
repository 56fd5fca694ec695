"""A sandbox: where a script runs, away from the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from delf.machine.zones import Zone, local_zone
from delf.members import ProtocolMeta
from delf.records import dataclass
from delf.types import Isolation

MAX_SCRIPT: Final = 2**17
"""The maximum number of characters of a script; models write at most some ten thousand."""
MAX_MESSAGE: Final = 4096
"""The maximum number of characters kept of an error message from a sandbox."""
MAX_TEXT: Final = 20_000
"""The maximum number of characters that a script may pass to the next script."""
MAX_NAME: Final = 200
"""The maximum number of characters kept of a name from a sandbox."""
_MAX_VARIABLES: Final = 100


def _truncate_fields(outcome: Any, **max_lengths: int) -> None:
    """Truncate the texts of an outcome in place, before prompts, events and logs contain them.

    Args:
        outcome: The outcome of a script, or a call request.
        max_lengths: The maximum number of characters of each field.
    """
    for name, max_length in max_lengths.items():
        value = getattr(outcome, name)
        if isinstance(value, str):
            object.__setattr__(outcome, name, _short(value, max_length))


def _truncate_variables(outcome: Done | Failed | Rerun | LimitReached) -> None:
    """Truncate the variables of an outcome in place: their number, names and types."""
    first = islice(outcome.variables.items(), _MAX_VARIABLES)
    short_variables = {
        _short(str(name), MAX_NAME): _short(str(kind), 2 * MAX_NAME) for name, kind in first
    }
    object.__setattr__(outcome, "variables", short_variables)


def _short(text: str, max_length: int) -> str:
    """Truncate a text, and replace characters that UTF-8 cannot encode."""
    short_text = text if len(text) <= max_length else f"{text[: max_length - 1]}…"
    try:
        short_text.encode()
    except UnicodeEncodeError:  # replace lone surrogates, halves of characters, by U+FFFD
        return short_text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return short_text


def limit(default: Any, *, prompt: str) -> Any:
    """Declare a limit that the prompt shows, because the model can plan a script with it.

    Args:
        default: The default.
        prompt: The words of the prompt, such as ``{} calls``, with ``{}`` for the value.
    """
    return field(default=default, metadata={"prompt": prompt})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a session; a script that exceeds a limit ends with a clear error.

    The scripts of a task usually share one session. If a limit is exceeded, the session ends. A new
    session replaces the ended one, and gets what is left of the processor time, output files and
    calls.

    Args:
        cpu_seconds: Processor time of the whole session.
        memory_bytes: Address space of the script's process.
        calls: Tool calls of a session; this also ends an endless loop of calls.
        output_bytes: Text printed by one script.
        max_files: Output files of a session.
        file_bytes: Size of one output file, and of each file written to scratch space.
        total_file_bytes: All output files of a session together.
        frame_bytes: Size of one message on the wire: a call's arguments or result.
        open_files: File descriptors.
        processes: Processes in addition to the script's own.
        scratch_bytes: All files in scratch space together.
    """

    cpu_seconds: float = 60.0
    memory_bytes: int = 512 * 1024 * 1024
    calls: int = limit(100_000, prompt="{} calls")
    output_bytes: int = limit(10 * 1024 * 1024, prompt="{} printed")
    max_files: int = limit(1000, prompt="{} files")
    file_bytes: int = limit(50 * 1024 * 1024, prompt="{} a file")
    total_file_bytes: int = limit(200 * 1024 * 1024, prompt="{} in all files")
    frame_bytes: int = 64 * 1024 * 1024
    open_files: int = 64
    processes: int = 0
    scratch_bytes: int = 50 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNames:
    """The callable names of one connection in a script.

    Args:
        name: The variable's name.
        methods: The methods; empty when the connection itself is called.
        changing: The methods with side effects; ``""`` stands for the connection itself.
    """

    name: str
    methods: tuple[str, ...] = ()
    changing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """The specification of a session.

    Args:
        tools: The names of the callable tools.
        modules: The top-level modules that scripts may import; harmless standard modules and the
            libraries when None.
        libraries: The third-party packages that scripts may import, by the names of their
            distributions.
        limits: The limits of the session; a later session of a task gets what is left.
        files: The input files that scripts may read, as absolute paths of the host.
        file_names: The names of the files for scripts, in the same order; the last parts of the
            paths when empty.
        row_files: The suffixes of spreadsheets and other output files that the host writes from
            rows which the script sends.
        zone: The time zone of the script's clock.
    """

    tools: tuple[ToolNames, ...]
    modules: tuple[str, ...] | None = None
    libraries: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    files: tuple[str, ...] = ()
    file_names: tuple[str, ...] = ()
    row_files: tuple[str, ...] = ()
    zone: Zone = field(default_factory=local_zone)

    @property
    def path_by_name(self) -> dict[str, str]:
        """A mapping from the name of an input file in scripts to its path on the host."""
        names = self.file_names or tuple(Path(path).name for path in self.files)
        paths: dict[str, str] = {}
        # Of two files with one name, scripts see the first.
        for name, path in zip(names, self.files, strict=True):
            paths.setdefault(name, path)
        return paths


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """A tool call from a script; every field is unverified input from the script.

    Args:
        call_id: The number in the session.
        connection: The connection's name, or the tool's.
        method: The method; empty when the connection itself is called.
        args: Arguments by position.
        kwargs: Arguments by name.
        alone: Whether the script is blocked until the answer arrives.
        line: The line of the call in the script, from 1; None if unknown.
    """

    call_id: int
    connection: str
    method: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    alone: bool = False
    line: int | None = None

    def __post_init__(self) -> None:
        _truncate_fields(self, connection=MAX_NAME, method=MAX_NAME)


@dataclass(frozen=True, slots=True)
class Returned:
    """The answer to a call that succeeded.

    Args:
        value: The result itself.
        encoded: The result as tagged JSON, for backends that use the wire format.
    """

    value: Any
    encoded: bytes | None = field(default=None, repr=False, compare=False)


REJECTED: Final = "ApprovalRejected"
"""The name of the exception that a script gets for a rejected call."""


@dataclass(frozen=True, slots=True)
class Raised:
    """The answer to a call that failed: the script sees an exception.

    Args:
        kind: The exception's name in the script: ``ToolError``, ``ToolException``,
            ``ToolNotAllowed``, ``ApprovalRejected`` or ``ToolArgumentError``.
        message: The message for the script and the model.
        cause: The exception of the tool on the host.
        can_retry: Whether another script could succeed.
        http_status: The HTTP status of the answer that failed; the script reads it as ``status``.
    """

    kind: str
    message: str
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    can_retry: bool = field(default=True, compare=False)
    http_status: int | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of a failed call whose ``handle_error`` turned the exception into a text."""

    message: str


CallAnswer = Returned | Raised | ToolMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStart:
    """The recorded values with which a script runs in the same way as before.

    Args:
        seed: The seed of all random numbers.
        clock: The first clock reads: Unix times in nanoseconds. Later reads see the real time.
        turns: The iterations of the script's event loop in which answers to calls arrived or timers
            fired, as passed to :meth:`ScriptHost.turns_taken`.
    """

    seed: str = ""
    clock: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()


class ScriptHost:
    """The functions that a session calls while a script runs, on the host's event loop.

    This base class refuses all calls and ignores all reports; subclasses override the methods.
    """

    script_start: ScriptStart | None = None
    """The random seed and the recorded clock reads for the next script.

    A replayed script gets the same values as before. None if the script is never replayed.
    """

    async def call(self, request: CallRequest) -> CallAnswer:
        """Make a call on the script's behalf; this base class refuses every call.

        Cancelled when the sandbox is gone, or after :meth:`abandon`.
        """
        action = request.method or request.connection
        return Raised("ToolError", f"{action} cannot be called: this host makes no calls")

    def printed(self, text: str) -> None:
        """Record text that the script printed."""

    def wrote_file(self, name: str, data: bytes) -> None:
        """Record a complete output file of the script.

        Raises:
            ValueError: If the name or size is refused; the session must then be closed.
        """

    def wrote_rows(self, name: str, data: bytes) -> None:
        """Receive rows that the script wrote to an output file; the host creates the file later.

        Args:
            name: The name of the output file.
            data: The rows, as JSON with type tags.

        Raises:
            ValueError: If the name or the rows are refused; the session must then be closed.
        """

    def clock_read(self, readings: Sequence[int]) -> None:
        """Record the clock reads of a script, except reads replayed from ``script_start.clock``.

        Args:
            readings: Unix times in nanoseconds, in the order of the reads.
        """

    def turns_taken(self, turns: Sequence[int]) -> None:
        """Record when answers arrived and timers fired, for :attr:`ScriptStart.turns` of a replay.

        Args:
            turns: Two numbers for each event. The first is the number of the iteration in which the
                script's event loop handled the event. The second is the number of the answered
                call, or the negative number of the fired timer. For example, ``[3, 1, 5, -2]`` says
                that call 1 was answered in iteration 3, and timer 2 fired in iteration 5. The
                second number is 0 for an iteration, long after the last event, in which the script
                printed, made a call or ended.
        """

    def abandon(self, call_id: int) -> None:
        """Record that the script stopped waiting for a call, before the call is cancelled.

        Also called if the call's answer was sent too late.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The script ran to its end.

    Args:
        value: The value of the last expression, if it can be encoded.
        variables: The variables after the script, with their types.
    """

    value: Any = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _truncate_variables(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The script raised.

    Args:
        kind: The exception's type.
        message: The message.
        line: The failing line of the script, from 1.
        source: The text of that line.
        variables: The variables after the failure, with their types.
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
        _truncate_fields(self, kind=MAX_NAME, message=MAX_MESSAGE, source=MAX_MESSAGE)
        _truncate_variables(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """The script asked that the model write another script, with ``context`` in its prompt."""

    context: str
    remaining: str
    carry: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _truncate_fields(self, context=MAX_TEXT, remaining=MAX_TEXT)
        _truncate_variables(self)
        carry = tuple(_short(str(name), MAX_NAME) for name in self.carry[:_MAX_VARIABLES])
        object.__setattr__(self, "carry", carry)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """The script exceeded a limit: ``cpu``, ``memory``, ``output``, ``file``, ``calls`` …."""

    limit: str
    message: str
    line: int | None = None
    source: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        _truncate_fields(self, limit=MAX_NAME, message=MAX_MESSAGE, source=MAX_MESSAGE)
        _truncate_variables(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The sandbox died or violated the protocol; the session is unusable.

    Args:
        message: A description of the failure.
        by_script: Whether the script ended the sandbox itself, for example by exiting. If False,
            the script is run again in another sandbox.
    """

    message: str
    by_script: bool = False

    def __post_init__(self) -> None:
        _truncate_fields(self, message=MAX_MESSAGE)


Outcome = Done | Failed | Rerun | LimitReached | Crashed


def check_script(code: str) -> LimitReached | None:
    """Return an outcome if a script is too large to run, else None.

    Args:
        code: The script.
    """
    if len(code) <= MAX_SCRIPT:
        return None
    message = (
        f"the script has {len(code):,} characters, and the limit is {MAX_SCRIPT:,}: "
        "put data into files"
    )
    return LimitReached(limit="script", message=message)


class SandboxSession(Protocol):
    """A confined interpreter of a task. Variables persist between scripts."""

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
class SupportsUsage(Protocol, metaclass=ProtocolMeta):
    """A session that reports its processor time, so that a task's limit covers all sessions."""

    @property
    def cpu_seconds(self) -> float:
        """The total processor time in seconds, known once the session is closed."""
        ...


@dataclass(frozen=True, slots=True)
class Available:
    """The result for a working backend; ``detail`` describes its confinement."""

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
        """Check whether sessions can be opened on this machine. Never raises."""
        ...

    async def open(self, spec: SessionSpec) -> SandboxSession:
        """Open a fresh session that no other task has used.

        Raises:
            SandboxUnavailableError: If no session can be opened.
        """
        ...

    def visible_path(self, path: str) -> str:
        """Return the path under which a script sees an input file.

        Scripts can also open the file by its name (:attr:`SessionSpec.path_by_name`).

        Args:
            path: The absolute path on the host.
        """
        ...

    async def aclose(self) -> None:
        """Close all sessions and release all resources. Idempotent."""
        ...


@runtime_checkable
class SupportsAbandoning(Protocol, metaclass=ProtocolMeta):
    """A backend with processes that outlive the event loop of their sessions."""

    def abandon(self) -> None:
        """End all sessions without an event loop, because the program has closed the agent's loop.

        ``aclose`` is not awaited in that case, because it would run on another event loop.
        """
        ...


@runtime_checkable
class SupportsMeasures(Protocol, metaclass=ProtocolMeta):
    """A backend that can test which of its confinement measures work here."""

    async def measures(self) -> Mapping[str, bool]:
        """Return each measure that confines a script, with True if it works here."""
        ...


@runtime_checkable
class SupportsLanguage(Protocol, metaclass=ProtocolMeta):
    """A backend that knows its Python version, for the prompt."""

    @property
    def language(self) -> str:
        """The Python version, such as ``Python 3.12``; the same for every session."""
        ...


@runtime_checkable
class SupportsLibraryCheck(Protocol, metaclass=ProtocolMeta):
    """A backend whose scripts import the packages that are installed beside delf."""

    def missing_libraries(self, libraries: tuple[str, ...]) -> Mapping[str, str]:
        """Return the packages that scripts cannot import, with the reason and the remedy.

        Args:
            libraries: Requirements of packages, such as ``pandas>=2``.
        """
        ...


@runtime_checkable
class SupportsPreparation(Protocol, metaclass=ProtocolMeta):
    """A backend that needs preparation before its first session, such as building an image."""

    async def prepare(self, libraries: tuple[str, ...]) -> None:
        """Prepare the backend once, before any task starts or model is asked.

        Args:
            libraries: Third-party packages that scripts may import.

        Raises:
            SandboxUnavailableError: If the preparation fails, with the reason.
        """
        ...


@runtime_checkable
class SupportsWarmUp(Protocol, metaclass=ProtocolMeta):
    """A backend that can prepare sessions before tasks need them."""

    async def warm_up(self, spec: SessionSpec) -> None:
        """Prepare for later sessions with this specification."""
        ...
