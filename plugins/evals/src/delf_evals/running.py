"""Running of a data set under variants of the project's settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pydantic_core import to_jsonable_python
from pydantic_evals.evaluators import EvaluatorContext
from pydantic_evals.lifecycle import CaseLifecycle
from pydantic_evals.otel import SpanTree
from pydantic_evals.otel.span_tree import SpanNode
from pydantic_evals.reporting import ReportCase, ReportCaseFailure

from delf import Agent, AgentConfig, Response
from delf.errors import ConfigurationError, DelfError, ToolExecutionError, without_passwords
from delf.events import (
    ASK,
    CallFinished,
    CallStarted,
    Event,
    ModelReplied,
    ScriptGenerated,
    ToolsSelected,
)
from delf.protocols.connection import SupportsContext
from delf_cli.session import TIMEOUT_SECONDS, Setup
from delf_engine.redact import Redactor
from delf_evals.checks import DONE, Done
from delf_evals.datasets import AnyDataset, CaseInputs
from delf_evals.judge import AskOnce, Judge
from delf_evals.reasons import expectation_of, reason_of
from delf_evals.recorded import (
    CURRENT_ENVIRONMENT,
    RecordedConnection,
    RecordedEnvironment,
    recorded_answer,
)
from delf_evals.report import CallMade, CaseResult, CheckResult, VariantResult

_PROJECT: Final = "the project's settings"
# Agent settings that switch off approvals, journal, memory, learning and observers.
_ISOLATED_SETTINGS: Final[Mapping[str, Any]] = {
    "journal": "none",
    "approvals": (),
    "approval_mode": "approve_all",
    "flows": "off",
    "memory": None,
    "learn": False,
    "chat": None,
    "observers": (),
    "record": None,
    "verbose": False,
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run of a data set.

    Args:
        repeat: The number of runs of each case.
        jobs: The maximum number of concurrent cases.
        live_reads: Whether calls that only read and have no recorded result are really made.
        on_result: Called with the result of each run of a case.
    """

    repeat: int = 1
    jobs: int = 4
    live_reads: bool = False
    on_result: Callable[[CaseResult], None] = lambda _: None


def variant_settings(text: str, folder: Path) -> list[str]:
    """Split the text of a variant, ``llm=gpt-5 strategy=stream``, into ``KEY=VALUE`` settings.

    Args:
        text: Settings as for ``--set``, separated by spaces. A value ``@FILE`` is replaced by the
            text of that file.
        folder: The folder to which ``FILE`` is relative.

    Raises:
        ConfigurationError: If the text cannot be split, or a file cannot be read.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise ConfigurationError(f"--with {text!r}: {error}") from None
    settings: list[str] = []
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigurationError(
                f"--with {text!r}: {part!r} is no setting",
                hint="write KEY=VALUE, as in --with 'llm=gpt-5 strategy=stream'",
            )
        if value.startswith("@"):
            try:
                value = (folder / value[1:]).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"--with {text!r}: {value[1:]}: {error}") from None
        settings.append(f"{key}={value}")
    return settings


def variant_name(text: str, setup: Setup) -> str:
    """Return the name of a variant in reports: its text without secrets.

    Args:
        text: The text of the variant; empty for the settings of the project alone.
        setup: The project with the variant's settings.
    """
    name = Redactor(setup.project.secrets()).redact_text(text)
    return without_passwords(name.strip()) or _PROJECT


@dataclass
class _CaseRun:
    """The inputs, the response and the recorded calls of a single run of an evaluation case."""

    inputs: CaseInputs
    response: Response[Any] | None = None
    environment: RecordedEnvironment = field(default_factory=RecordedEnvironment)


# The run of the case that the current asyncio task evaluates.
_CASE_RUN: ContextVar[_CaseRun] = ContextVar("delf_evals_case_run")


@asynccontextmanager
async def variant_agent(setup: Setup) -> AsyncGenerator[Agent[Any]]:
    """Start the agent of a variant, whose tools return recorded results.

    Args:
        setup: The project with the variant's settings.

    Raises:
        DelfError: If no task can begin, for example because the model has no key.
    """
    with TemporaryDirectory(prefix="delf-evals-") as output_dir:
        tools = [RecordedConnection(tool) for tool in setup.agent().tools]
        agent = isolated_agent(setup, tools, output_dir, on_ask=recorded_answer)
        async with agent:
            yield agent


async def run_variant(
    dataset: AnyDataset, agent: Agent[Any], name: str, options: RunOptions
) -> VariantResult:
    """Run all cases with the settings of a variant.

    Args:
        dataset: The data set. :meth:`Judge.use_agent_models` must have been called with those of
            its checks that ask a model.
        agent: The agent of :func:`variant_agent`.
        name: The name of the variant.
        options: The options of the run.

    Raises:
        DelfError: If no task can begin, for example because the model does not exist.
    """
    variant = _VariantRun(agent, options)

    class Lifecycle(CaseLifecycle[Any, Any, Any]):
        # pydantic-evals calls these methods in each run of a case: before the task, before the
        # checks, and at the end.
        async def setup(self) -> None:
            _CASE_RUN.set(_CaseRun(self.case.inputs))

        async def prepare_context(
            self, ctx: EvaluatorContext[Any, Any, Any]
        ) -> EvaluatorContext[Any, Any, Any]:
            return variant.with_task_results(ctx)

        async def teardown(self, result: _ReportedCase | None) -> None:
            if result is not None:
                variant.add_result(self.case.name, result)

    await dataset.evaluate(
        variant.answer_of,
        name=name,
        max_concurrency=options.jobs,
        progress=False,
        repeat=options.repeat,
        lifecycle=Lifecycle,
    )
    if variant.errors:
        raise variant.errors[0]
    cases = variant.results_in_order([case.name for case in dataset.cases])
    return VariantResult(name=name, model=agent.config.main_llm.model, cases=cases)


_ReportedCase = ReportCase[Any, Any, Any] | ReportCaseFailure[Any, Any, Any]


class _VariantRun:
    """Runs the cases of a data set with one agent, and collects the results.

    The methods about one case use the case run that the current asyncio task has in ``_CASE_RUN``.

    Args:
        agent: The agent.
        options: The options of the run.
    """

    def __init__(self, agent: Agent[Any], options: RunOptions) -> None:
        self._agent = agent
        self._options = options
        self._results: list[tuple[str | None, CaseResult]] = []  # each with the name of its case
        self.errors: list[DelfError] = []
        """The errors that prevent every task from beginning."""

    async def answer_of(self, inputs: CaseInputs) -> Any:
        """Run the task of a case, and return its answer."""
        case_run = _CASE_RUN.get()
        try:
            response = await _run(self._agent, inputs, case_run, self._options)
            case_run.response = response
            response.raise_if_never_begun()
        except ConfigurationError as error:
            self.errors.append(error)
            raise
        return _answer_of(response, case_run.environment)

    def with_task_results(
        self, ctx: EvaluatorContext[Any, Any, Any]
    ) -> EvaluatorContext[Any, Any, Any]:
        """Return a context for the evaluators with the calls, files and cost of a case's task.

        The context also has the names of the agent's actions, to report misspelled names in checks.
        """
        action_names: set[str] = set()
        for tool in self._agent.tools:
            action_names.update(getattr(tool, "names", ()))
        return _with_task_results(ctx, _CASE_RUN.get(), action_names)

    def add_result(self, case_name: str | None, reported: _ReportedCase) -> None:
        """Add the result of a case."""
        result = _result_of(reported, _CASE_RUN.get())
        self._results.append((case_name, result))
        self._options.on_result(result)

    def results_in_order(self, case_names: Sequence[str | None]) -> list[CaseResult]:
        """Return the results in the order of the cases; the runs of one case by their names."""

        def position(named_result: tuple[str | None, CaseResult]) -> tuple[int, str]:
            case_name, result = named_result
            return case_names.index(case_name), result.name

        return [result for _, result in sorted(self._results, key=position)]


def isolated_agent(
    setup: Setup, tools: Sequence[Any], output_dir: str, **parameters: Any
) -> Agent[Any]:
    """Create an agent of the project without approval channels, journal, memory and learning.

    Args:
        setup: The project.
        tools: The tools.
        output_dir: The folder for the output files of tasks.
        parameters: Additional parameters of ``Agent``.
    """
    isolated_settings: dict[str, Any] = {**_ISOLATED_SETTINGS, "output_dir": output_dir}
    if "timeout" not in setup.project.agent.model_fields_set:
        isolated_settings["timeout"] = TIMEOUT_SECONDS
    config = AgentConfig(**isolated_settings)
    return Agent(config, tools=tools, host=setup.host, project=setup.project, **parameters)


async def contexts_of(setup: Setup, task: str) -> dict[str, str]:
    """Return the texts that the project's connections add to a task's prompt now, by connection.

    Args:
        setup: The project.
        task: The task.

    Raises:
        DelfError: If a connection does not answer.
    """
    contexts: dict[str, str] = {}
    # No task runs, so no output folder is needed.
    async with isolated_agent(setup, setup.agent().tools, output_dir="") as agent:
        for tool in agent.tools:
            if isinstance(tool, SupportsContext):
                text = await tool.context(task)
                if text:
                    contexts[tool.name] = text
    return contexts


def make_judge(setup: Setup, model: str | None) -> Judge:
    """Create the judge of a data set's checks.

    Args:
        setup: The project; the settings of a variant do not apply to the judge.
        model: The judge's model; the project's when omitted.
    """
    model_parameter = {} if model is None else {"llm": model}
    agent = isolated_agent(setup, tools=[], output_dir="", strategy=AskOnce(), **model_parameter)
    return Judge(agent)


async def _run(
    agent: Agent[Any], inputs: CaseInputs, case_run: _CaseRun, options: RunOptions
) -> Response[Any]:
    """Run the task of a case, and let its calls return the recorded results of the case."""
    # The connections find the recorded results in the context variable.
    case_run.environment = RecordedEnvironment(
        inputs.calls, inputs.context, live_reads=options.live_reads
    )
    CURRENT_ENVIRONMENT.set(case_run.environment)
    output_option: dict[str, Any] = {} if inputs.output is None else {"output": inputs.output}
    return await agent.arun(
        inputs.task, files=inputs.files, variables=inputs.variables, **output_option
    )


def _answer_of(response: Response[Any], environment: RecordedEnvironment) -> Any:
    """Return the value or text of a response as the case's answer.

    Raises:
        DelfError: If the task failed, or if a call had no recorded result. Such a call counts even
            if the script caught the exception that the call raised.
    """
    if environment.unrecorded:
        calls = "; ".join(dict.fromkeys(environment.unrecorded))
        raise ToolExecutionError(f"no recorded result for {calls}")
    response.raise_for_status()
    return response.text.strip() if response.value is None else response.value


def _with_task_results(
    ctx: EvaluatorContext[Any, Any, Any], case_run: _CaseRun, action_names: set[str]
) -> EvaluatorContext[Any, Any, Any]:
    """Return a copy of an evaluator's context with the calls, files and cost of a case's task.

    Our checks read them from a :class:`Done` object, and the checks of pydantic-evals from spans.

    Args:
        ctx: The context of an evaluator of pydantic-evals.
        case_run: The run of the case.
        action_names: The names of the agent's actions.
    """
    response = case_run.response
    events = () if response is None else response.events
    files = {} if response is None else response.files
    calls = [
        {
            "action": start.action,
            "arguments": start.arguments,
            "effect": start.effect,
            "status": end.status,
        }
        for start, end in _calls_of(events)
    ]
    callable_actions = {*action_names, ASK}
    for event in events:
        if isinstance(event, ToolsSelected):
            callable_actions.update(event.actions)
    done = Done(
        calls=calls,
        files={name: Path(path) for name, path in files.items()},
        cost_usd=None if response is None else response.cost_usd,
        actions=callable_actions,
    )
    spans = SpanTree()
    spans.add_spans(_spans_of(events))
    return replace(
        ctx,
        inputs=case_run.inputs.given,
        attributes={**ctx.attributes, DONE: done},
        _span_tree=spans,
    )


def _calls_of(events: Sequence[Event]) -> list[tuple[CallStarted, CallFinished]]:
    # A call has two starts if its sandbox died before the action was run. The last start is used.
    starts = {event.call_id: event for event in events if isinstance(event, CallStarted)}
    ends = {event.call_id: event for event in events if isinstance(event, CallFinished)}
    return [(start, ends[number]) for number, start in starts.items() if number in ends]


def _spans_of(events: Sequence[Event]) -> list[SpanNode]:
    """Convert tool and model calls to OpenTelemetry spans for pydantic-evals checks."""
    spans: list[SpanNode] = []

    def add(name: str, event: Event, attributes: dict[str, Any], *, failed: bool = False) -> None:
        at = datetime.fromtimestamp(event.at, UTC)
        spans.append(
            SpanNode(
                name=name,
                trace_id=1,
                span_id=len(spans) + 1,
                parent_span_id=None,
                start_timestamp=at,
                end_timestamp=at,
                attributes=attributes,
                status="error" if failed else "ok",
            )
        )

    for start, end in _calls_of(events):
        arguments = json.dumps(_plain(dict(start.arguments)))
        attributes: dict[str, Any] = {
            "gen_ai.tool.name": start.action,
            "gen_ai.tool.call.arguments": arguments,
        }
        add(f"execute_tool {start.action}", start, attributes, failed=end.status != "ok")
    for event in events:
        if isinstance(event, ModelReplied):
            attributes = {"gen_ai.request.model": event.model, "gen_ai.operation.name": "chat"}
            add(f"chat {event.model}", event, attributes)
    return spans


def _result_of(
    result: ReportCase[Any, Any, Any] | ReportCaseFailure[Any, Any, Any], case_run: _CaseRun
) -> CaseResult:
    """Build the result of a run from pydantic-evals' result and the task's events."""
    response = case_run.response
    events = () if response is None else response.events
    calls: list[CallMade] = []
    for start, end in _calls_of(events):
        arguments = [f"{name}={value!r}"[:200] for name, value in start.arguments.items()]
        calls.append(
            CallMade(action=start.action, arguments=", ".join(arguments), status=end.status)
        )
    case_result = CaseResult(
        name=result.name,
        task=case_run.inputs.task,
        passed=False,
        expected=_plain(result.expected_output),
        scripts=[event.code for event in events if isinstance(event, ScriptGenerated)],
        calls=calls,
        cost_usd=None if response is None else response.cost_usd,
        duration_ms=0 if response is None else response.duration_ms,
        unrecorded=case_run.environment.unrecorded,
    )
    if isinstance(result, ReportCaseFailure):
        # pydantic-evals writes the exception's type before the message.
        _, _, message = result.error_message.partition(": ")
        return case_result.model_copy(update={"error": message})
    checks = _check_results(result)
    # The ``passed`` of a score is None, so a score does not fail a case.
    has_failed_check = any(check.passed is False for check in checks)
    return case_result.model_copy(
        update={
            "passed": not has_failed_check,
            "checks": checks,
            "answer": _plain(result.output),
        }
    )


def _check_results(result: ReportCase[Any, Any, Any]) -> list[CheckResult]:
    """Convert pydantic-evals' results of the checks of a case."""
    checks: list[CheckResult] = []
    for name, check in result.assertions.items():
        if check.value:
            checks.append(CheckResult(name=name, passed=True, reason=check.reason))
        else:
            reason, wanted = reason_of(check, result), expectation_of(check, result)
            checks.append(CheckResult(name=name, passed=False, reason=reason, wanted=wanted))
    checks += [
        CheckResult(name=name, value=check.value, reason=check.reason)
        for name, check in (*result.scores.items(), *result.labels.items())
    ]
    checks += [
        CheckResult(name=failure.name, passed=False, reason=failure.error_message)
        for failure in result.evaluator_failures
    ]
    return checks


def _plain(value: object) -> Any:
    return to_jsonable_python(value, fallback=repr, bytes_mode="base64")
