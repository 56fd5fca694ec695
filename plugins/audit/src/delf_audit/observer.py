"""The observer: records the events of a task that matter for an audit."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from delf.environment import beside
from delf.events import (
    ASKED_FROM,
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalDecided,
    ApprovalRemembered,
    ApprovalRequested,
    ApprovalVoted,
    CallFinished,
    CallStarted,
    Event,
    TaskFinished,
    TaskQueued,
    TaskResumed,
    TaskStarted,
)
from delf.machine.folders import user_folder
from delf.protocols.facts import labels
from delf.protocols.people import PersonChange, name_of_user
from delf.settings import LocalPath
from delf_audit.trail import AuditTrail

KEY_VARIABLE: Final = "DELF_AUDIT_KEY"
_MAX_ARGUMENT_CHARS: Final = 20_000


def trail_at(path: str | None) -> AuditTrail:
    """Return the audit file at a path; by default, the file is in the user's data folder.

    If the environment variable ``DELF_AUDIT_KEY`` is set, its value is the secret key that
    authenticates each record.
    """
    if path is None:
        used_path = user_folder("data") / "audit.jsonl"
    else:
        current_folder = Path()
        used_path = Path(beside(current_folder, path))
    secret = os.environ.get(KEY_VARIABLE)
    key = secret.encode() if secret else None
    return AuditTrail(used_path, key=key)


class AuditObserver:
    """An observer that writes tasks, approvals, calls and changes of people to an audit file.

    Implements :class:`delf.protocols.observer.Observer`.

    Args:
        path: The path of the file; by default, the file is in the user's data folder.
    """

    def __init__(self, *, path: LocalPath | None = None) -> None:
        self._trail = trail_at(path)
        self._reads: set[tuple[str, int]] = set()  # task id and call id of each unfinished read

    async def observe(self, event: Event) -> None:
        """Write a record for an event of a task, an approval or a call; ignore other events."""
        fields = self._fields_of_event(event)
        if fields is None:
            return
        record = {"at": _time(event.at), "task": event.task_id, **fields}
        # The record of a call's start has the field "effect". The record of a call's end does not,
        # but for a call that only reads, its field "what" is "read".
        is_of_read_call = fields.get("effect") == "read" or fields["what"] == "read"
        # Waiting for the disk is slow. A crash may lose the records of a read call, which changes
        # nothing.
        await asyncio.to_thread(self._trail.append, record, durable=not is_of_read_call)

    async def observe_person(self, change: PersonChange) -> None:
        """Write a record for a change of a person's rights or keys."""
        record = {
            "at": _time(change.at),
            "task": "",
            "what": "person",
            **_process_fields(),
            "name": change.name,
            "change": change.what,
            "by": change.by,
            "via": change.via,
            **change.facts,
        }
        await asyncio.to_thread(self._trail.append, record)

    async def aclose(self) -> None:
        """Do nothing, because each record is written before the next event is observed."""

    def _fields_of_event(self, event: Event) -> dict[str, Any] | None:
        """Return the fields of the record for an event; None for an event without a record."""
        match event:
            case TaskQueued() | TaskStarted():
                return _start_fields(event)
            case TaskResumed():
                return {"what": "resumed", **_process_fields(), "origin": event.origin}
            case ApprovalRequested():
                return _request_fields(event)
            case ApprovalDecided():
                return _decision_fields(event)
            case ApprovalVoted():
                fields = {"what": "vote", "request": event.request_id, "by": event.by}
                return {**fields, "via": event.via, "reason": event.reason}
            case ApprovalCommented():
                fields = {"what": "comment", "request": event.request_id, "by": event.by}
                return {**fields, "via": event.via, "text": event.text}
            case ApprovalAssigned():
                fields = {"what": "assigned", "request": event.request_id, "by": event.by}
                return {**fields, "via": event.via, "to": event.to}
            case ApprovalRemembered():
                return {
                    "what": "remembered",
                    "call": event.call_id,
                    "action": event.action,
                    "digest": event.digest,
                    "by": event.by,
                    "decided_at": _time(event.decided_at),
                    "from_task": event.from_task,
                    "request": event.from_request,
                }
            case CallStarted():
                # Remember the call, because the event CallFinished does not say if it only reads.
                if event.effect == "read":
                    self._reads.add((event.task_id, event.call_id))
                return {"what": "call", **_call_fields(event)}
            case CallFinished():
                return self._end_of_call(event)
            case TaskFinished():
                return {
                    "what": "end",
                    "state": event.state,
                    "error": event.error,
                    "cost_usd": event.cost_usd,
                    "by": event.by,
                    "via": event.via,
                }
            case _:
                return None

    def _end_of_call(self, event: CallFinished) -> dict[str, Any]:
        """Return the fields of the record for a finished call.

        The field ``what`` is ``read`` for a read call, and ``done`` for any other call.
        """
        key = (event.task_id, event.call_id)
        what = "read" if key in self._reads else "done"
        self._reads.discard(key)
        return {
            "what": what,
            "call": event.call_id,
            "action": event.action,
            "status": event.status,
            "error": event.error,
        }


def _process_fields() -> dict[str, str]:
    """Return the names of the system account and the machine of this process."""
    try:
        account = getpass.getuser()
    except (OSError, KeyError):
        account = str(os.getuid())
    return {"account": account, "machine": socket.gethostname()}


def _start_fields(event: TaskQueued | TaskStarted) -> dict[str, Any]:
    """Return the fields of the record for a queued or started task: the task's text and origin."""
    fields = {
        "what": "queued" if isinstance(event, TaskQueued) else "task",
        **_process_fields(),
        "origin": event.origin,
        "text": event.task,
        "user": name_of_user(event.user),
        "from": event.setup.get(ASKED_FROM),
    }
    if isinstance(event, TaskStarted) and event.parent is not None:
        fields["parent"] = event.parent
    return fields


def _request_fields(event: ApprovalRequested) -> dict[str, Any]:
    """Return the fields of the record for an approval request.

    In the file, an approval request is called a ``question``.
    """
    fields = {"what": "question", "request": event.request_id, **_call_fields(event)}
    # The facts that an approval channel shows to the person beside the call, each with a label.
    shown: dict[str, Any] = {}
    for name in labels():
        value = getattr(event, name)
        if value not in (None, ""):
            shown[name] = value
    if shown:
        fields["shown"] = _encode_bounded(shown)
    if event.flow is not None:
        fields |= _flow_fields(event)
    return fields


def _flow_fields(event: ApprovalRequested) -> dict[str, Any]:
    """Return the data flow of a call and the origins of its arguments, as shown to a person."""
    return {
        "flow": event.flow,
        "origins": {path: origin["text"] for path, origin in event.origins.items()},
    }


def _call_fields(event: CallStarted | ApprovalRequested) -> dict[str, Any]:
    return {
        "call": event.call_id,
        "action": event.action,
        "effect": event.effect,
        "arguments": _encode_bounded(event.arguments),
        "digest": event.digest,
    }


def _decision_fields(event: ApprovalDecided) -> dict[str, Any]:
    edited = {} if event.arguments is None else {"arguments": _encode_bounded(event.arguments)}
    # `others` are people who approved before. `covers` says for which later calls a remembered
    # decision holds.
    return {
        "what": "decision",
        "request": event.request_id,
        "decision": event.decision,
        "by": event.by,
        "via": event.via,
        "others": list(event.others),
        "reason": event.reason,
        "remember": event.remember,
        "covers": event.covers,
        **edited,
    }


def _encode_bounded(arguments: Mapping[str, Any]) -> Any:
    """Return arguments as JSON data; if they are too long, return the beginning and the length."""
    text = json.dumps(dict(arguments), default=str, ensure_ascii=False)
    if len(text) <= _MAX_ARGUMENT_CHARS:
        return json.loads(text)  # values that are not JSON have become text
    return f"{text[:_MAX_ARGUMENT_CHARS]}… ({len(text):,} characters)"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
