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
from delf.protocols.people import PersonChange, name_of_holder
from delf_audit.trail import AuditTrail

KEY_VARIABLE: Final = "DELF_AUDIT_KEY"
_LONGEST: Final = 20_000


def trail_at(path: str | None) -> AuditTrail:
    """Return the audit file at a path, by default in the user's data folder.

    The key comes from ``DELF_AUDIT_KEY``, if set.
    """
    from platformdirs import user_data_path

    place = user_data_path("delf", appauthor=False) / "audit.jsonl"
    key = os.environ.get(KEY_VARIABLE)
    return AuditTrail(
        place if path is None else Path(path).expanduser(), key.encode() if key else None
    )


class AuditObserver:
    """Implements :class:`delf.protocols.observer.Observer`.

    Args:
        path: The file.
    """

    def __init__(self, *, path: str | None = None) -> None:
        self._trail = trail_at(path)
        self._reads: set[tuple[str, int]] = set()

    async def observe(self, event: Event) -> None:
        """Record a request, an approval or an action."""
        content = self._content(event)
        if content is None:
            return
        record = {"at": _time(event.at), "task": event.task_id, **content}
        # Reads are not synced to disk: a read lost in a crash changed nothing, and syncing is slow.
        durable = content.get("effect") != "read" and content["what"] != "read"
        await asyncio.to_thread(self._trail.append, record, durable=durable)

    async def observe_person(self, change: PersonChange) -> None:
        """Record a change of a person: rights or keys."""
        record = {
            "at": _time(change.at),
            "task": "",
            "what": "person",
            **_who(),
            "name": change.name,
            "change": change.what,
            "by": change.by,
            "via": change.via,
            **change.facts,
        }
        await asyncio.to_thread(self._trail.append, record)

    async def aclose(self) -> None:
        """Do nothing: each record is written before the next event."""

    def _content(self, event: Event) -> dict[str, Any] | None:
        match event:
            case TaskQueued() | TaskStarted():
                is_queued = isinstance(event, TaskQueued)
                content = {"origin": event.origin, "text": event.task}
                fields = {"for": name_of_holder(event.key), "from": event.setup.get(ASKED_FROM)}
                record = {"what": "queued" if is_queued else "task", **_who(), **content, **fields}
                parent = None if isinstance(event, TaskQueued) else event.parent
                return record if parent is None else {**record, "parent": parent}
            case TaskResumed():
                return {"what": "resumed", **_who(), "origin": event.origin}
            case ApprovalRequested():
                fields = {"what": "question", "request": event.request_id, **_call(event)}
                return fields if event.flow is None else {**fields, **_flow(event)}
            case ApprovalDecided():
                return _decision(event)
            case ApprovalVoted():
                voted = {"what": "vote", "request": event.request_id, "by": event.by}
                return {**voted, "via": event.via, "reason": event.reason}
            case ApprovalCommented():
                talk = {"what": "comment", "request": event.request_id, "by": event.by}
                return {**talk, "via": event.via, "text": event.text}
            case ApprovalAssigned():
                talk = {"what": "assigned", "request": event.request_id, "by": event.by}
                return {**talk, "via": event.via, "to": event.to}
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
                if event.effect == "read":
                    self._reads.add((event.task_id, event.call_id))
                return {"what": "call", **_call(event)}
            case CallFinished():
                return self._end_of_call(event)
            case TaskFinished():
                return {
                    "what": "end",
                    "status": event.status,
                    "error": event.error,
                    "cost_usd": event.cost_usd,
                    "by": event.by,
                    "via": event.via,
                }
            case _:
                return None

    def _end_of_call(self, event: CallFinished) -> dict[str, Any]:
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


def _who() -> dict[str, str]:
    """Return the user and machine that this process belongs to."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return {"user": user, "machine": socket.gethostname()}


def _flow(event: ApprovalRequested) -> dict[str, Any]:
    """Return the sources of a call's values, as shown to a person."""
    return {
        "flow": event.flow,
        "origins": {path: origin["text"] for path, origin in event.origins.items()},
    }


def _call(event: CallStarted | ApprovalRequested) -> dict[str, Any]:
    return {
        "call": event.call_id,
        "action": event.action,
        "effect": event.effect,
        "arguments": _encode_bounded(event.arguments),
        "digest": event.digest,
    }


def _decision(event: ApprovalDecided) -> dict[str, Any]:
    edited = {} if event.arguments is None else {"arguments": _encode_bounded(event.arguments)}
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
    """Encode arguments as JSON; a long argument becomes its beginning and its length."""
    text = json.dumps(dict(arguments), default=str, ensure_ascii=False)
    if len(text) <= _LONGEST:
        return json.loads(text)
    return f"{text[:_LONGEST]}… ({len(text):,} characters)"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
