"""What an agent is made with, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from delf.llm import LLMConfig
from delf.types import ApprovalMode, ConfirmMode, Isolation


class AgentOptions(TypedDict, total=False):
    """The fields of :class:`delf.config.schema.AgentConfig` as keywords."""

    llm: str | LLMConfig | None
    light_llm: str | LLMConfig | None
    heavy_llm: str | LLMConfig | None
    vision_llm: str | LLMConfig | None
    system_prompt: str | None
    providers: Mapping[str, str] | None
    verbose: bool
    prefilter_mode: str
    embedder: str | None
    memory_namespace: str
    memory_top_k: int
    memory_threshold: float
    learn: bool | Literal["ask"]
    retry_count: int
    rerun_count: int
    sandbox: str
    sandbox_config: Mapping[str, Any] | None
    min_isolation: Isolation
    files: Sequence[str] | None
    allowed_libs: Sequence[str] | None
    budget_usd: float | None
    allow_unpriced: bool
    strategy: str
    approval_mode: ApprovalMode
    confirm_mode: ConfirmMode
    wait_approvals: bool
    approvals: Sequence[str] | None
    approval_timeout: float
    timeout: float
    stream: bool
    max_tasks: int
    max_depth: int
    keep_tasks: int
    record: str | None
    journal: str
    output_dir: str | None
