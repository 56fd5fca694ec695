"""Step 4, generate: the model writes a script."""

from __future__ import annotations

from delf.engine.codegen.extract import extract_code
from delf.engine.codegen.preview import confirmed_actions
from delf.engine.codegen.prompt import no_code_messages
from delf.engine.task import TaskRun
from delf.errors import CodeGenerationError
from delf.events import RetryScheduled, ScriptGenerated
from delf.messages import Message, ModelRequest


async def generate(run: TaskRun, messages: tuple[Message, ...], attempt: int) -> str:
    """Ask the main model until there is a script, as often as retries are allowed.

    Args:
        run: The task.
        messages: The conversation so far.
        attempt: The pass through the loop, from 1.

    Raises:
        CodeGenerationError: When no answer held a script.
        LLMExecutionError: When the model failed.
        BudgetExceededError: Before anything is spent.
    """
    async with run.step("generate", attempt):
        for chance in range(run.config.retry_count + 1):
            request = ModelRequest(messages=messages)
            reply = await run.asker.ask(run.config.main_llm, request, attempt)
            code = extract_code(reply.text)
            if code is not None:
                await run.log.record(
                    ScriptGenerated,
                    code=code,
                    attempt=attempt,
                    confirmed_actions=confirmed_actions(code, run.tools),
                )
                return code
            if chance < run.config.retry_count:
                await run.log.record(
                    RetryScheduled, attempt=attempt, error="the answer held no script"
                )
                messages = (*messages, *no_code_messages(reply.text))
    raise CodeGenerationError(
        f"the model {run.config.main_llm.model!r} answered without a script "
        f"{run.config.retry_count + 1} times"
    )
