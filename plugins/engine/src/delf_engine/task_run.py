"""``TaskRun``: the state of a running task."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from delf.errors import DelfError
from delf.events import TaskStarted, Warned
from delf.llm import LLMConfig
from delf.machine.zones import local_zone
from delf.messages import ModelRequest, Purpose, user
from delf.protocols.conversation import KeptVariables
from delf.protocols.formats import InputFile
from delf.protocols.sandbox import SessionSpec
from delf.protocols.strategy import ToolChoice, ToolDescription, takes_changes
from delf.tools.stubs import stubs_of
from delf.types import Trust
from delf_engine.agent_tools import AgentTools
from delf_engine.approvals.flows import TaskFlows
from delf_engine.approvals.policy import TaskApprovals
from delf_engine.bound_action import BoundAction
from delf_engine.calls.call import Call
from delf_engine.config import AgentConfig
from delf_engine.inputs import check_inputs, find_inputs, input_files
from delf_engine.journal.log import TaskLog
from delf_engine.journal.replay import Replay
from delf_engine.memory import AgentMemory, is_own_fact
from delf_engine.models.client import ModelClient
from delf_engine.models.money import Ledger
from delf_engine.origins.fold import (
    ANSWER,
    CONVERSATION,
    MEMORY,
    PARENT,
    VARIABLE,
    ContextText,
    Origins,
)
from delf_engine.origins.outline import FOLLOWED, OUTLINE_QUESTION, parse_calls
from delf_engine.output import OutputFiles, output_folder
from delf_engine.resources import Resources
from delf_engine.strategies import with_strategy
from delf_engine.task import TaskContext, TaskRequest, moment
from delf_engine.toolset import check_variable_names
from delf_engine.variables import value_for_model
from delf_engine.waiting import Permit, TaskClock

_log = logging.getLogger(__name__)
# The maximum number of input files that are searched for the values of calls.
_MAX_SEARCHED_FILES: Final = 20
# The maximum number of bytes that are read of each input file.
_MAX_FILE_SIZE: Final = 1_000_000
# The maximum number of times that a script runs again after its sandbox died.
_MAX_RESTARTS: Final = 5


class Restarts:
    """Limits how often a task continues after its sandbox died.

    Without a limit, a script that kills every sandbox would be run again forever.
    """

    def __init__(self) -> None:
        self._remaining = _MAX_RESTARTS
        self._calls_at_last_death = 0
        self.has_lost_sandbox = False
        """True if a sandbox of the task has died."""

    def count_death(self, calls: int) -> bool:
        """Count the death of a sandbox; return whether the script may run again in another one.

        The script may not run again if the sandbox died too often in a row and the task made no
        further call between these deaths.

        Args:
            calls: The number of calls that the task has made so far.
        """
        self.has_lost_sandbox = True
        # If the task made more calls than until the last death of a sandbox, the script probably
        # did not cause that death, and has all restarts again.
        has_progressed = calls > self._calls_at_last_death
        if has_progressed:
            self._remaining = _MAX_RESTARTS
        self._remaining -= 1
        self._calls_at_last_death = calls
        return self._remaining >= 0


class TaskRun:
    """The state of a running task, which the steps of its pipeline share and update.

    Args:
        resources: The agent's resources.
        request: The request.
        permit: The task's permit to run.
        tools: The tools.
        inputs: The input files.
        previous: The earlier run whose sandbox died; this run continues its clock, its count of
            restarts and its log.
    """

    def __init__(
        self,
        resources: Resources,
        request: TaskRequest,
        permit: Permit,
        tools: AgentTools,
        inputs: Sequence[InputFile],
        previous: TaskRun | None = None,
    ) -> None:
        child = request.child
        self.resources = resources
        self.request = request
        self.permit = permit
        self.agent_tools = tools
        """The connections and functions of the agent or child task, with their loaded tools."""
        self.inputs = inputs
        config = resources.config if child is None else child.config
        self.config: AgentConfig = _config_of(request, config, resources)
        self.strategy = resources.strategy(self.config.strategy)
        self.is_continued = previous is not None
        """True if an earlier run of the task ended because its sandbox died."""
        self.replay = Replay(request.past)
        self.seed = self.replay.seed or secrets.token_hex(16)
        """The seed for the random numbers of scripts."""
        self.zone = self.replay.zone or local_zone()
        """The time zone at the start of the task."""
        if previous is None:
            parent_clock = None if child is None else child.clock
            # The clock pauses while the task waits for a person. A bounded task counts that time.
            self.clock = TaskClock(request.timeout, parent_clock, ignores_pauses=request.bounded)
            self.restarts = Restarts()
            self.started = time.perf_counter()
            listeners = [*resources.observers.feeds, *request.listeners]
            self.log = TaskLog(
                request.task_id, resources.journal, listeners, resources.redactor, self.replay
            )
        else:
            self.clock = previous.clock
            self.restarts = previous.restarts
            self.started = previous.started
            self.replay.previous_owner = previous.replay.previous_owner
            self.log = previous.log
            self.log.restart(self.replay)
        self.models = ModelClient(
            pool=resources.models,
            ledger=self.ledger_of(resources, request),
            log=self.log,
            system_prompt=self.config.system_prompt,
            stream=self.config.stream if request.stream is None else request.stream,
            on_delta=request.on_delta,
            redactor=resources.redactor,
            replay=self.replay,
            keep_prompts=self.config.keep_prompts,
        )
        self.tools = tools.tools
        """All actions that scripts can call, and those of these actions that the model is shown."""
        self.conversation_variables = KeptVariables(values={})
        """The variables that the conversation's previous task left for scripts."""
        self.context = TaskContext(
            files=[file.line for file in inputs],
            task_variables={
                name: value_for_model(value) for name, value in request.variables.items()
            },
        )
        """The data that the model gets with the task."""
        self._value_origins = self._origins()
        flows = None
        if resources.config.flows != "off":
            rules = resources.approvals.approved_flows
            flows = TaskFlows(self._value_origins, self._ask_for_outline, self.log, rules)
        self.approvals = TaskApprovals(
            resources.approvals,
            request,
            self.log,
            permit,
            self.clock,
            flows,
            # Only a model that plans again can follow the requested changes.
            can_request_changes=takes_changes(self.strategy),
        )
        folder = output_folder(self.config.output_dir, request.past)
        self.output = OutputFiles(folder, resources.files.formats, self.log)

    @classmethod
    async def begin(cls, resources: Resources, request: TaskRequest, permit: Permit) -> Self:
        """Create the run of a task.

        A child task may bring its own tools, and a request may name its own input files. Otherwise
        the tools and the input files are those of the agent.

        Raises:
            DelfError: If the tools or files are not available.
        """
        child = request.child
        child_tools = None if child is None else child.tools
        tools, inputs = resources.tools, resources.files.inputs
        if request.files is not None:
            visible_path_of = resources.sandbox.backend.visible_path
            own_files = resources.config.own_files  # whose contents the user trusts
            inputs = input_files(find_inputs(request.files), visible_path_of, own_files)
        elif not request.is_resumed:  # a resumed task gets the contents from the journal
            check_inputs(inputs)
        if request.files is None and child_tools is None:
            # The agent's tools were loaded at its start. Since then, the program may have changed
            # ``allow``, or an MCP server may have new tools.
            await tools.renew()
        else:
            tools = await resources.tools_with(child_tools, inputs)  # loads them anew
        if not request.is_resumed:
            check_variable_names(request.variables, tools.tools)
        return cls(resources, request, permit, tools, inputs)

    def restarted(self) -> TaskRun:
        """Create a run that resumes the task from its journal, after its sandbox died."""
        request = replace(self.request, past=tuple(self.log.events))
        parts = self.resources, request, self.permit, self.agent_tools, self.inputs
        return TaskRun(*parts, previous=self)

    @staticmethod
    def ledger_of(resources: Resources, request: TaskRequest) -> Ledger:
        """Return the ledger that pays for a task: the task's own, or else the agent's."""
        request_ledger = request.ledger if request.child is None else request.child.ledger
        if request_ledger is None:
            return resources.agent.ledger
        return request_ledger

    def chosen_llm(self, choice: str | LLMConfig) -> LLMConfig:
        """Return the configuration of a model that a worker or a connection has chosen."""
        return self.config.chosen_llm(choice, self.resources.agent.context.host.providers)

    def tool_choice(self) -> ToolChoice:
        """Return the shown tools and the omitted ones."""
        return self.tools.choice(self.config.tools_budget)

    @property
    def memory(self) -> AgentMemory | None:
        """The memory of the task's user; None for a child task."""
        memories = self.resources.memories
        if memories is None or self.request.child is not None:
            return None
        return memories.of(self.request.user)

    @property
    def session_spec(self) -> SessionSpec:
        """The limits, tools and input files of the task's sandbox sessions."""
        return replace(self.resources.session_spec(self.agent_tools, self.inputs), zone=self.zone)

    async def ask(self, purpose: Purpose, question: str, llm: LLMConfig | None = None) -> str:
        """Ask a model one question, at the cost of this task.

        Args:
            purpose: The purpose, for the journal.
            question: The question.
            llm: The model; the agent's light model when None.

        Raises:
            DelfError: If the budget is exceeded, or the call failed after retries.
        """
        request = ModelRequest(messages=(user(question),), purpose=purpose)
        return (await self.models.ask_whole(llm or self.config.quick_llm, request)).text

    async def warn(self, message: str) -> None:
        """Record a warning for people."""
        await self.log.record(Warned, message=message)

    @asynccontextmanager
    async def failures_as_warnings(self, subject: str) -> AsyncGenerator[None]:
        """Record an exception in the block as a warning instead of raising it.

        Args:
            subject: The beginning of the warning, before the reason.
        """
        try:
            yield
        except DelfError as error:
            await self.warn(f"{subject}: {error.message}")
        except Exception as error:
            self.log.redactor.log_failure(_log, subject, error)
            await self.warn(f"{subject}: an unexpected {type(error).__name__}")

    async def _ask_for_outline(self, obeyed_texts: Sequence[str]) -> None:
        """Ask the main model for the outline: the calls that the user's words ask for.

        Args:
            obeyed_texts: The texts whose instructions the user wants to be obeyed, such as a file.
        """
        user_words = self._value_origins.user_words
        choice = self.tool_choice()
        # The model does not see descriptions that a server wrote ("outside"), only the user's own.
        untrusted_names: set[str] = set()
        for bound_action in self.tools.shown:
            connection = bound_action.connection
            if _trust_of_texts(connection, "description_trust", default="own") == "outside":
                untrusted_names.add(bound_action.name)
        shown_tools = [
            _without_descriptions(tool) if tool.name in untrusted_names else tool
            for tool in choice.shown
        ]
        started = next(event for event in self.log.events if isinstance(event, TaskStarted))
        further_words = [f"{FOLLOWED}\n{text}" for text in obeyed_texts]
        question = OUTLINE_QUESTION.format(
            tools=stubs_of(replace(choice, shown=shown_tools), self.request.task),
            now=moment(started.at, self.zone),
            words="\n\n".join([user_words, *further_words]),
        )
        async with self.failures_as_warnings(
            "the model could not say which calls the task asks for"
        ):
            # The reply is logged under this purpose, and read from the log.
            await self.ask("outline", question, self.config.main_llm)

    def _origins(self) -> Origins:
        """Build the index of the task's texts that finds the origins of values."""
        request = self.request
        untrusted_files = [file for file in self.inputs if file.trust != "own"]
        return Origins(
            task=request.task if request.trust == "own" else "",
            read_context_texts=self._texts_beside_user_words,
            tool_of=self._tool_of,
            read_files=partial(_searched_texts, untrusted_files),
            # Scripts can read files and the request's variables without a call. Nobody declares the
            # trust of such a variable, so its value counts as data of others.
            has_received_untrusted=bool(untrusted_files or request.variables),
            untrusted_variables=_variables_of_untrusted_routine(request),
        )

    def _tool_of(self, name: str) -> BoundAction | None:
        return self.tools.get(name)  # the tools are replaced while the task runs

    def _texts_beside_user_words(self) -> Iterator[ContextText]:
        """Yield each text that the model gets in addition to the words of the user.

        If a script of the parent wrote the task, the task itself is such a text, which may contain
        untrusted data.
        """
        if self.request.trust != "own":
            yield ContextText("outside", self.request.task, PARENT)
        yield from self._texts_of_context()
        yield from self._texts_of_connections()

    def _texts_of_context(self) -> Iterator[ContextText]:
        """Yield each variable, message and fact that the task was started with."""
        for name, value in self.request.variables.items():
            yield ContextText("outside", repr(value), f"{VARIABLE} {name}")
        for message in self.context.history:
            if message.role == "user":
                yield ContextText("own", message.text, CONVERSATION)
            else:
                yield ContextText(message.trust, message.text, ANSWER)
        if self.context.summary:
            yield ContextText(self.context.summary_trust, self.context.summary, ANSWER)
        kept_variables = self.conversation_variables
        for name, value in kept_variables.values.items():
            yield ContextText(kept_variables.trust, repr(value), f"{VARIABLE} {name}")
        for fact in self.context.facts:
            trust = "own" if is_own_fact(fact) else "outside"
            yield ContextText(trust, fact, MEMORY)

    def _texts_of_connections(self) -> Iterator[ContextText]:
        """Yield the texts that connections add to the prompt.

        All facts about connections are yielded, but only those descriptions of actions that other
        people may have written.
        """
        sources = self.tools.with_context
        for name, text in self.context.live.items():
            # Facts have the trust that the user or the connection's class declares, else "outside".
            trust = _trust_of_texts(sources.get(name), "context_trust")
            yield ContextText(trust, text, f"the facts about {name}", is_description=True)
        for bound_action in self.tools.shown:
            trust = _trust_of_texts(bound_action.connection, "description_trust", default="own")
            if trust == "own":
                continue  # only texts of others are searched for the origin of a value
            place = f"the descriptions of {bound_action.connection.name}"
            for text in filter(None, bound_action.action.texts()):
                yield ContextText("outside", text, place, is_description=True)

    def trust_of(self, call: Call) -> Trust:
        """Return ``own`` if all arguments of a call are the user's own data, else ``outside``."""
        self._value_origins.follow(self.log.events)
        is_own = self._value_origins.are_only_from_user(call.bound.name, call.arguments, call.line)
        return "own" if is_own else "outside"

    @property
    def trust(self) -> Trust:
        """``own`` while the task has read no untrusted data, afterwards ``outside``."""
        self._value_origins.follow(self.log.events)
        return "outside" if self._value_origins.has_received_untrusted else "own"


def _trust_of_texts(connection: object, attribute: str, *, default: Trust = "outside") -> Trust:
    """Return the trust of a connection's texts: as the user set it, or as its class declares it.

    Args:
        connection: The connection.
        attribute: The attribute with which the class declares the trust.
        default: The trust if neither the user nor the class has declared the trust.
    """
    trust = getattr(connection, "trust", None)
    is_set_by_user = isinstance(trust, str)
    if not is_set_by_user:
        trust = getattr(connection, attribute, default)
    return "own" if trust == "own" else "outside"


def _without_descriptions(tool: ToolDescription) -> ToolDescription:
    parameters = tuple(replace(each, doc="", notes="") for each in tool.parameters)
    texts = dict.fromkeys(("summary", "notes", "about", "returns_doc"), "")
    return replace(tool, **texts, parameters=parameters, full_types=None)


def _variables_of_untrusted_routine(request: TaskRequest) -> list[str]:
    """Return the variables that hold a routine's arguments if an untrusted task calls the routine.

    For the task ``name(customer="Ann")``, the routine's script starts with a variable ``customer``.
    """
    if request.trust == "own":
        return []
    keywords = itertools.chain.from_iterable(call.keywords for call in parse_calls(request.task))
    return [str(keyword.arg) for keyword in keywords]


def _searched_texts(files: Sequence[InputFile]) -> Iterator[tuple[str, str]]:
    """Yield the name and the beginning of each input file, to search for arguments of calls."""
    for file in files[:_MAX_SEARCHED_FILES]:
        yield file.name, _beginning_of(file.path)


def _beginning_of(path: str) -> str:
    """Return the beginning of a text file; empty for binary and missing files."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_SIZE)
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode(errors="replace")


def _config_of(request: TaskRequest, config: AgentConfig, resources: Resources) -> AgentConfig:
    """Return the configuration of a task, with the task's own model and strategy.

    Args:
        request: The task.
        config: The configuration of the agent, or of the child task.
        resources: The agent's resources.
    """
    if request.model is not None and request.child is None:  # a child's config has its model
        config = config.with_main_llm(request.model, resources.agent.context.host.providers)
    strategy = request.strategy or config.strategy
    is_strategy_of_agent = strategy == resources.config.strategy
    if is_strategy_of_agent:
        return config  # has the settings of this strategy since the agent was made
    # A strategy may change other settings, too.
    config_with_strategy = config.model_copy(update={"strategy": strategy})
    return with_strategy(config_with_strategy, resources.agent.context.host)
