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
    """A valid call of a known action.

    Args:
        number: The number in the task.
        bound: The action.
        arguments: The validated arguments; an edit changes them and the digest.
        description: The script's ``desc=``.
        digest: The identity of the call.
        alone: Whether the script is blocked until the call is answered.
        line: The line of the call in the script.
        begun: Whether the journal has its start, perhaps from before a resume.
        again: Whether the call was interrupted before a resume, with unknown outcome.
        ended: Whether its end is recorded or being recorded.
        abandoned: Whether the script has stopped waiting for the call.
        basis: The basis of the preview that a person has approved.
        files: The content of the task's files that the call has read so far, its check included, by
            name. A file is read once, so that the call uses the content a person was asked about.
        edited: The names of the arguments that people have changed.
        absent: Texts in the arguments that named no readable file when a person was asked about the
            call.
    """

    number: int
    bound: BoundAction
    arguments: dict[str, Any]
    description: str | None
    digest: str
    alone: bool = False
    line: int | None = None
    begun: bool = False
    again: bool = False
    ended: bool = False
    abandoned: bool = False
    basis: str | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    absent: set[str] = field(default_factory=set[str])
    edited: set[str] = field(default_factory=set[str])

    @property
    def files_digest(self) -> str | None:
        """SHA-256 over the names and contents of the read files; None without files."""
        if not self.files:
            return None
        digest_of_all = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            digest_of_all.update(f"{name}\n".encode("utf-8", "surrogatepass"))
            digest_of_all.update(hashlib.sha256(data).digest())
        return digest_of_all.hexdigest()


def call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 over an action's name and its arguments, the identity of a call."""
    return hashlib.sha256(dumps([name, dict(sorted(arguments.items()))])).hexdigest()


def identity(name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return a text that identifies a call among all calls that need approval.

    The identity is computed from the plain arguments of the script, not from the objects that the
    action makes of them: the text of an object may omit a part, such as a secret, so that two
    different calls would look equal.

    Args:
        name: The action.
        arguments: The arguments as the script gave them.
        defaults: The defaults of arguments; an argument that equals its default counts as omitted.
    """
    try:
        explicit = {
            n: v
            for n, v in arguments.items()
            if n not in defaults or not _equals_default(v, defaults[n])
        }
        return call_digest(name, explicit)
    except (RecursionError, UnsupportedValueError):
        return secrets.token_hex(32)  # like no other call


def _equals_default(value: Any, default: Any) -> bool:
    """Return True if a value has the default's type and value: 1 does not equal True."""
    if type(value) is not type(default):
        return False
    try:
        return dumps(value) == dumps(default)
    except UnsupportedValueError:
        return False
