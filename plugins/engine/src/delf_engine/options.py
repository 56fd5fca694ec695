"""Keyword arguments with the fields of an agent's configuration, for type checkers.

Written by ``make generated``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from delf.llm import LLMConfig
    from delf.types import ApprovalMode, ConfirmMode, FlowMode, Isolation


class AgentOptions(TypedDict, total=False):
    """Fields of :class:`~delf_engine.config.AgentConfig` as keywords; None stands for the default.

    ``docs/configuration.md`` explains each field. A model is given as a name or an ``LLMConfig``.
    """

    llm: str | LLMConfig | Sequence[str | LLMConfig] | None
    light_llm: str | LLMConfig | Sequence[str | LLMConfig] | None
    heavy_llm: str | LLMConfig | Sequence[str | LLMConfig] | None
    vision_llm: str | LLMConfig | Sequence[str | LLMConfig] | None
    system_prompt: str | None
    providers: Mapping[str, str] | None
    api_key_for: Mapping[str, str] | None
    verbose: bool | None
    prefilter_mode: str | None
    tools_budget: int | None
    embedder: str | None
    memory_config: Mapping[str, Any] | None
    learn: bool | None
    retry_count: int | None
    rerun_count: int | None
    sandbox: str | None
    sandbox_config: Mapping[str, Any] | None
    min_isolation: Isolation | None
    files: Sequence[str] | None
    own_files: Sequence[str] | None
    allowed_libs: Sequence[str] | None
    budget_usd: float | None
    allow_unpriced: bool | None
    approval_mode: ApprovalMode | None
    confirm_mode: ConfirmMode | None
    flows: FlowMode | None
    approval_rules: Mapping[str, Any] | None
    wait_approvals: bool | None
    approvals: Sequence[str] | None
    observers: Sequence[str] | None
    approval_timeout: float | None
    stream: bool | None
    record: str | None
    max_tasks: int | None
    max_children: int | None
    keep_prompts: bool | None
    timeout: float | None
    journal: str | None
    lease: float | None
    former_folders: Sequence[str] | None
    output_dir: str | None
