from typing import Any

import pytest

from delf.protocols.approval import ApprovalRequest


def make_request(arguments: dict[str, Any], **changes: Any) -> ApprovalRequest:
    fields: dict[str, Any] = {
        "request_id": "req",
        "task_id": "task",
        "task": "a task",
        "action": "mail.send",
        "permission": "send",
        "effect": "irreversible",
        "arguments": arguments,
        "description": None,
        "digest": "d",
    }
    return ApprovalRequest(**{**fields, **changes})


@pytest.fixture
def request_for():
    return make_request


@pytest.fixture(autouse=True)
def no_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are typed as lines, unless a test sets the person's editor."""
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
