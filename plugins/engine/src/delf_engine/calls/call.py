"""A call on its way through gate, approval, journal and execution, and its identity."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from delf.protocols.strategy import ScriptCall
from delf.records import dataclass
from delf.values.encoding import UnsupportedValueError, dumps
from delf_engine.bound_action import BoundAction
from delf_engine.journal.recording import RecordedCall
from delf_engine.tolerance import validate_arguments


@dataclass(slots=True)
class Call:
    """A tool call whose action exists and whose arguments are valid.

    Args:
        number: The call's number in the task.
        bound: The action.
        arguments: The validated arguments. A person's edit changes ``arguments`` and ``digest``.
        description: The value of ``desc=`` in the script, if any.
        digest: The call's :func:`identity`.
        blocks_script: Whether the script does nothing else until the call is answered.
        line: The line of the call in the script.
        has_start_event: Whether the journal has the start of the call, perhaps from before a
            resume.
        was_begun_before: Whether an earlier process began the call and was interrupted, so that its
            outcome is unknown.
        ended: Whether the end of the call is recorded or being recorded.
        abandoned: Whether the script has stopped waiting for the call.
        basis: The basis of the approved preview, such as a document's revision.
        files: A mapping from name to content of the task's files that the call has read so far. A
            file is read once, so that the call uses the content that a person approved.
        edited: The names of the arguments that people edited.
        has_changed_since_request: Whether the call differs from what a person was asked about; the
            next request says so.
        unreadable_names: Texts in the arguments that named no readable file when a person was asked
            about the call. The call cannot read files of these names.
    """

    number: int
    bound: BoundAction
    arguments: dict[str, Any]
    description: str | None
    digest: str
    blocks_script: bool = False
    line: int | None = None
    has_start_event: bool = False
    was_begun_before: bool = False
    ended: bool = False
    abandoned: bool = False
    basis: str | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    unreadable_names: set[str] = field(default_factory=set[str])
    edited: set[str] = field(default_factory=set[str])
    has_changed_since_request: bool = False

    @property
    def files_digest(self) -> str | None:
        """SHA-256 over the names and contents in ``files``; None if no file was read."""
        if not self.files:
            return None
        digest = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            digest.update(f"{name}\n".encode("utf-8", "surrogatepass"))
            digest.update(hashlib.sha256(data).digest())
        return digest.hexdigest()

    @property
    def script_call(self) -> ScriptCall:
        """The read-only record of the call for a strategy's guard."""
        return ScriptCall(
            name=self.bound.name,
            effect=self.bound.action.effect,
            arguments=self.arguments,
            built_in=self.bound.built_in,
        )

    @classmethod
    def validated(
        cls, number: int, bound: BoundAction, keywords: Mapping[str, Any], description: str | None
    ) -> Call:
        """Validate the arguments of a call, and return the call.

        Raises:
            ToolRefusedError: If the arguments do not fit the action.
        """
        # ``script_arguments`` has the values as the script passed them, ``validated_arguments`` has
        # the same values as the types that the action declares.
        script_arguments, validated_arguments = validate_arguments(bound.action, keywords)
        # The digest is made from the script's values. A declared type may hide parts of a value,
        # such as a secret, so its values could give two different calls the same digest.
        digest = identity(bound.name, script_arguments, bound.action.defaults)
        return cls(number, bound, validated_arguments, description, digest)

    def edit(self, arguments: Mapping[str, Any]) -> None:
        """Validate arguments that a person edited, and set them.

        Raises:
            ToolRefusedError: If the arguments do not fit the action; the call is then unchanged.
        """
        edited = Call.validated(self.number, self.bound, arguments, self.description)
        self.edited |= {
            name
            for name, value in edited.arguments.items()
            if name not in self.arguments or self.arguments[name] != value
        }
        self.arguments = edited.arguments
        self.digest = edited.digest

    def continue_from(self, recorded_call: RecordedCall) -> None:
        """Continue a call that an earlier process recorded and did not end."""
        # Further events of the call must have the number under which the journal knows it.
        self.number = recorded_call.call_id
        self.has_start_event = self.was_begun_before = recorded_call.started is not None


def call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 of an action's name and arguments."""
    return hashlib.sha256(dumps([name, dict(sorted(arguments.items()))])).hexdigest()


def identity(name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return a digest that is equal only for calls of the same action with the same arguments.

    The digest is made from the arguments as the script gave them, not from the objects that the
    action makes of them: the text of such an object may omit a secret, and different calls would
    get the same digest. A call whose arguments cannot be encoded equals no other call.

    Args:
        name: The full name of the action.
        arguments: The arguments as the script gave them.
        defaults: The default values by argument; an argument that equals its default counts as
            omitted.
    """
    try:
        explicit: dict[str, Any] = {}
        for argument, value in arguments.items():
            is_default = argument in defaults and _equals_default(value, defaults[argument])
            if not is_default:
                explicit[argument] = value
        return call_digest(name, explicit)
    except (RecursionError, UnsupportedValueError):
        return secrets.token_hex(32)  # equals the digest of no other call


def _equals_default(value: Any, default: Any) -> bool:
    """Return True if a value equals the default and has the same type: 1 does not equal True."""
    if type(value) is not type(default):
        return False
    try:
        return dumps(value) == dumps(default)
    except UnsupportedValueError:
        return False
