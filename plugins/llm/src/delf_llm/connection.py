"""``llm``: a script asks a language model, about texts, images and documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from delf import CallContext, Connection, action
from delf.errors import ToolExecutionError
from delf.messages import user
from delf.protocols.formats import InputFile, InstalledFormats
from delf.tools.action import Action
from delf.tools.signature import Parameter

_SHOWN_PARAMETERS: Final = (
    Parameter(name="prompt", type_text="str"),
    Parameter(name="file_data", type_text="list", default_text="[]"),
)

MAX_PROMPT: Final = 1_000_000
"""The maximum number of characters of one prompt."""


class LLM(Connection):
    """a language model, for what code cannot judge"""  # noqa: D415 - its first line is in every prompt

    def __init__(self, files: Sequence[InputFile], formats: InstalledFormats) -> None:
        # delf passes formats to each connection that gets files; this one does not need them.
        super().__init__(name="llm")
        # Scripts may give a file's name or its path in the sandbox; both lead to the name.
        self._files = {name: file.name for file in files for name in (file.name, file.visible)}

    async def actions(self) -> Sequence[Action]:
        """Return the action ``call``, described briefly because every prompt contains it."""
        (item,) = await super().actions()
        summary = "file_data: input files' names, or bytes"
        return (replace(item, summary=summary, parameters=_SHOWN_PARAMETERS),)

    @action(effect="read")
    async def call(
        self, prompt: str, file_data: list[Any] | None = None, *, context: CallContext
    ) -> str:
        """Ask a language model; the vision model if files are given.

        Args:
            prompt: The question, with all that is needed to answer it.
            file_data: The files of the question: names of input files, bytes, or ``(name, bytes)``.
            context: The task, whose budget pays for the call.

        Raises:
            ToolExecutionError: If the prompt is empty or too long, or a file is invalid.
            BudgetExceededError: If the budget is exhausted; the model is not called.
            LLMExecutionError: If the model failed after retries.
        """
        if not prompt.strip():
            raise ToolExecutionError("the prompt is empty")
        if len(prompt) > MAX_PROMPT:
            raise ToolExecutionError(
                f"the prompt has {len(prompt):,} characters, and at most {MAX_PROMPT:,} can be "
                "asked at once; ask about parts of it"
            )
        if not file_data:
            return (await context.ask([user(prompt)])).text
        from delf_llm.attachments import Attachments

        parts = await Attachments(self._files, context.read_file).parts(file_data)
        return (await context.ask([user(prompt, parts)], llm=context.vision_llm)).text
