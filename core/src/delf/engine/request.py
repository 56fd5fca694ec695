"""``TaskOrder``: what somebody wants done, and who looks on."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delf.errors import ConfigurationError

if TYPE_CHECKING:
    from delf.config.schema import AgentConfig
    from delf.engine.clock import TaskClock
    from delf.engine.journal.log import Listener
    from delf.engine.loop.conversation import Conversation
    from delf.events import Event
    from delf.protocols.connection import ConnectionLike

OnDelta = Callable[[str], None]
"""Sees a piece of a model's answer."""


def new_task_id() -> str:
    """A name for a task that no other task has."""
    return f"task_{secrets.token_hex(8)}"


def check_task(task: object) -> None:
    """Refuse what is no task before a model is asked about it.

    Raises:
        ConfigurationError: When it is empty, or no text.
    """
    if not isinstance(task, str) or not task.strip():
        given = "empty" if isinstance(task, str) else f"{type(task).__name__}, not text"
        raise ConfigurationError(f"the task is {given}", hint="say what to do, in plain words")


@dataclass(frozen=True, kw_only=True)
class ChildOptions:
    """What a child task has of its own.

    Args:
        parent: The task whose call has it done.
        depth: How many tasks are above it.
        config: Its configuration.
        clock: The parent's time.
        tools: Its connections; the agent's when None.
        files: Its input files; the agent's when None.
    """

    parent: str
    depth: int
    config: AgentConfig
    clock: TaskClock
    tools: Sequence[ConnectionLike] | None = None
    files: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class TaskOrder:
    """An order for a task.

    Args:
        task: What to do, in plain words.
        timeout: Seconds from the moment it begins to run.
        task_id: Its name.
        conversation: What the task continues.
        listeners: See the events after they were journalled.
        on_delta: Sees pieces of the model's answers.
        stream: Take answers in pieces; the configuration decides when None.
        attended: Whether the caller waits for it, so that a terminal may ask.
        patient: Whether its requests wait for an answer where nobody can be asked, as those of
            a task do that was ordered for the background.
        setup: What the caller needs to set up the same agent again; kept in the journal.
        past: The journal of the task, which is taken up again.
        child: What it has of its own, if it is the child of another task.
    """

    task: str
    timeout: float
    task_id: str = field(default_factory=new_task_id)
    conversation: Conversation | None = None
    listeners: Sequence[Listener] = ()
    on_delta: OnDelta | None = None
    stream: bool | None = None
    attended: bool = True
    patient: bool = False
    setup: Mapping[str, Any] = field(default_factory=dict[str, Any])
    past: Sequence[Event] = ()
    child: ChildOptions | None = None
