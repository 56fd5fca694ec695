"""A call on its way through gate, approval, journal and execution, and its identity."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from delf.records import dataclass
from delf.values.encoding import UnsupportedValueError, dumps
from delf_engine.bound_action import BoundAction


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
