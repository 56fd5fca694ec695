"""``llm``: a script asks a language model, about texts, images and documents."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from delf.config.schema import AgentConfig
from delf.engine.builtins.attachments import Attachments
from delf.engine.inputs import paths_by_name
from delf.engine.models.client import ModelClient
from delf.errors import ToolException
from delf.messages import ModelRequest, Part, user
from delf.protocols.formats import InputFile
from delf.tools.action import Action, action_from_function
from delf.tools.connection import Connection
from delf.tools.signature import Parameter

_FILE_DATA: Final = Parameter(name="file_data", type_text="list", default_text="[]")

MAX_PROMPT: Final = 1_000_000
"""The most characters of one prompt."""


class LLM(Connection):
    """Asks a language model. Each task puts the call of its own :class:`TaskLLM` in its place."""

    summary = "a language model, for what code cannot judge"

    async def actions(self) -> Sequence[Action]:
        """Its one action."""
        return _described()


class TaskLLM:
    """What the scripts of one task ask models by.

    Args:
        models: Asks models, counted and recorded.
        config: Says which models.
        files: The input files.
    """

    def __init__(
        self, models: ModelClient, config: AgentConfig, files: Sequence[InputFile]
    ) -> None:
        self._models = models
        self._config = config
        self._files = files

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
        if not prompt.strip():
            raise ToolException("the prompt is empty")
        if len(prompt) > MAX_PROMPT:
            raise ToolException(
                f"the prompt has {len(prompt):,} characters, and at most {MAX_PROMPT:,} can be "
                "asked at once; ask about parts of it"
            )
        parts: Sequence[Part] = ()
        if file_data:
            parts = await Attachments(paths_by_name(self._files)).parts(file_data)
        model = self._config.image_llm if parts else self._config.main_llm
        request = ModelRequest(messages=(user(prompt, parts),), purpose="call")
        return (await self._models.ask(model, request)).text


@functools.cache
def _described() -> tuple[Action, ...]:
    """The action as it is shown: in every prompt, so in few words."""
    item = action_from_function(
        TaskLLM.call, name="call", effect="read", where="llm.call", skip_first=True
    )
    shown = (Parameter(name="prompt", type_text="str"), _FILE_DATA)
    return (replace(item, summary="file_data: input files' names, or bytes", parameters=shown),)
