"""``llm``: a script asks a language model, about texts, images and documents."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delf.config.schema import AgentConfig
from delf.engine.builtins.attachments import Attachments
from delf.engine.models.client import ModelClient
from delf.errors import ToolException
from delf.messages import ModelRequest, user
from delf.tools.action import Action, action, actions_of
from delf.tools.connection import Connection
from delf.tools.signature import Parameter

_FILE_DATA: Final = Parameter(name="file_data", type_text="list", default_text="[]")

MAX_PROMPT: Final = 1_000_000
"""The most characters of one prompt."""


class LLM(Connection):
    """Asks a language model."""

    summary = "a language model, for what code cannot judge"

    def __init__(
        self,
        asker: ModelClient | None = None,
        config: AgentConfig | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """The connection of one task.

        Args:
            asker: Asks models, counted and recorded; without one it only describes itself.
            config: Says which models.
            files: The input files: names as scripts know them to paths of the host.
        """
        super().__init__()
        self._asker = asker
        self._config = config
        self._attachments = Attachments(files or {})

    async def actions(self) -> Sequence[Action]:
        """Its one action, bound to the task."""
        return [replace(item, call=self.call) for item in _described()]

    @action(effect="read")
    async def call(self, prompt: str, file_data: list[Any] | None = None) -> str:
        """Ask a language model; about images and other files the model for those.

        Args:
            prompt: The question, with all that is needed to answer it.
            file_data: What it is about: names of input files, bytes, ``(name, bytes)``, or
                ``{"name": …, "data": bytes, "media_type": …}``.

        Raises:
            ToolException: For an empty or too long prompt, and for what is no file.
            BudgetExceededError: Before anything is spent.
            LLMExecutionError: When the model failed for good.
        """
        if self._asker is None or self._config is None:
            raise ToolException("no model can be asked here")
        if not prompt.strip():
            raise ToolException("the prompt is empty")
        if len(prompt) > MAX_PROMPT:
            raise ToolException(
                f"the prompt has {len(prompt):,} characters, and at most {MAX_PROMPT:,} can be "
                "asked at once; ask about parts of it"
            )
        parts = await self._attachments.parts(file_data or [])
        model = self._config.image_llm if parts else self._config.main_llm
        request = ModelRequest(messages=(user(prompt, parts),), purpose="call")
        return (await self._asker.ask(model, request)).text


@functools.cache
def _described() -> tuple[Action, ...]:
    """The action as it is shown: in every prompt, so in few words."""
    (item,) = actions_of(LLM, None, "llm")
    shown = (Parameter(name="prompt", type_text="str"), _FILE_DATA)
    return (replace(item, summary="file_data: input files' names, or bytes", parameters=shown),)
