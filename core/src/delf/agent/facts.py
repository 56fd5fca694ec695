"""What an agent says of itself: state, budget, models, tools. Never a key."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from delf.agent.background import BackgroundTasks
from delf.agent.home import RuntimeHome
from delf.config.schema import AgentConfig
from delf.engine.approvals.pending import PendingRequests
from delf.engine.models.usage import Ledger
from delf.llm import LLMConfig
from delf.messages import Usage

if TYPE_CHECKING:
    from delf.events import Event
    from delf.protocols.connection import ConnectionLike


class AgentFacts:
    """The part of an agent that can be asked about it; from any thread, at any time."""

    agent_id: str
    config: AgentConfig
    tools: tuple[ConnectionLike, ...]
    _home: RuntimeHome
    _tasks: BackgroundTasks
    _ledger: Ledger
    _pending: PendingRequests

    @property
    def usage(self) -> Usage:
        """Tokens of all tasks so far."""
        return self._ledger.usage

    @property
    def total_cost_usd(self) -> float:
        """What all tasks so far cost since the last reset, as far as prices are known."""
        return self._ledger.cost_usd

    def reset_budget(self, limit: float | None = None) -> None:
        """Count costs from zero again, under a new limit if one is given (USD)."""
        self._ledger.reset(limit)

    def status(self) -> dict[str, Any]:
        """How the agent stands now, as JSON-ready data.

        ``state`` is ``new``, ``starting``, ``running`` or ``stopped``; ``tasks`` counts those
        that run and those that wait for a place; ``budget`` has ``limit_usd``,
        ``remaining_usd`` (None without a limit), ``spent_usd``, ``reserved_usd`` for calls that
        are being made, and ``is_exhausted``.
        """
        runtime = self._home.runtime
        running, queued = (0, 0) if runtime is None else runtime.counts
        usage = self._ledger.usage
        return {
            "agent_id": self.agent_id,
            "state": self._home.state,
            "tasks": {"running": running, "queued": queued, "kept": len(self._tasks)},
            "pending_approvals": len(self._pending.list()),
            "sandbox": None if runtime is None else runtime.sandbox,
            "budget": self._budget(),
            "usage": {
                "input_tokens": usage.input_tokens,
                "cached_tokens": usage.cached_tokens,
                "output_tokens": usage.output_tokens,
                "total_tokens": usage.total_tokens,
            },
            "total_cost_usd": self._ledger.cost_usd,
            "unpriced_calls": self._ledger.unpriced_calls,
        }

    def _budget(self) -> dict[str, Any]:
        ledger = self._ledger
        return {
            "limit_usd": ledger.budget_usd,
            "spent_usd": ledger.cost_usd,
            "reserved_usd": ledger.reserved_usd,
            "remaining_usd": ledger.remaining_usd,
            "is_exhausted": ledger.is_exhausted,
        }

    def info(self) -> dict[str, Any]:
        """What the agent is made of, with its :meth:`status`, as JSON-ready data."""
        config = self.config
        return {
            **self.status(),
            "llm": self.get_llm_config_string(),
            "models": {role: model.model for role, model in self._models().items()},
            "tools": [item.name for item in self.tools],
            "strategy": config.strategy,
            "journal": config.journal,
            "approval_mode": config.approval_mode,
            "timeout": config.timeout,
            "retry_count": config.retry_count,
            "rerun_count": config.rerun_count,
            "max_tasks": config.max_tasks,
            "min_isolation": config.min_isolation,
        }

    def get_llm_config_string(self) -> str:
        """The models in words: ``gpt-5.5``, or ``heavy gpt-5.5, light gpt-5.5-mini``."""
        models = {role: _words(model) for role, model in self._models().items()}
        if set(models) == {"llm"}:
            return models["llm"]
        return ", ".join(f"{role} {text}" for role, text in models.items())

    def _models(self) -> dict[str, LLMConfig]:
        config = self.config
        if config.heavy_llm is None and config.vision_llm is None:
            return {"llm": config.main_llm}
        roles = {
            "heavy": config.main_llm,
            "light": config.light_llm,
            "vision": config.vision_llm,
        }
        return {role: model for role, model in roles.items() if model is not None}

    def inspect(self, *, verbose: bool = False) -> dict[str, Any]:
        """The agent's tools as data; with ``verbose`` their descriptions and parameters."""
        described: list[dict[str, Any]] = []
        for item in self.tools:
            look = getattr(item, "inspect", None)
            described.append(look(verbose=verbose) if look is not None else {"tool": item.name})
        return {"agent": self.agent_id, "tools": described, "total": len(described)}

    def __repr__(self) -> str:
        names = ", ".join(item.name for item in self.tools) or "no tools"
        return f"<{type(self).__name__} {self.agent_id}: {names}>"


def _words(model: LLMConfig) -> str:
    """A model with its address and settings; without key, headers, and login."""
    text = model.model if model.address is None else f"{model.model} at {model.address}"
    settings: Sequence[str] = [f"{name}={value!r}" for name, value in model.settings.items()]
    return f"{text} ({', '.join(settings)})" if settings else text


def tell(event: Event) -> None:
    """Say on stderr what happened: the listener of ``verbose``."""
    from delf import events as ev
    from delf.engine.views.story import story
    from delf.terminal import visible

    if isinstance(event, ev.TaskStarted):
        text: str | None = f"task {event.task_id}: {event.task}"
    elif isinstance(event, ev.Warned):
        text = f"  warning: {event.message}"
    else:
        text = story(event)
    if text:
        sys.stderr.write(visible(text) + "\n")
        sys.stderr.flush()
