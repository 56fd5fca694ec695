"""The connection ``workers``, by which scripts call agents that are declared in files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict

from delf import Agent, CallContext, Connection, action
from delf.errors import ConfigurationError, ToolRefusedError
from delf.machine.folders import user_folder
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
from delf.protocols.context import PluginContext
from delf.settings import current_trust
from delf.tools.action import Action, actions_of
from delf.tools.permissions import is_allowed
from delf_workers import attachments as files_of
from delf_workers.definition import WorkerDefinition, check_name
from delf_workers.project_files import FOLDER
from delf_workers.registry import Registry
from delf_workers.rights import Workshop, lineage
from delf_workers.running import DEFAULT_TASK
from delf_workers.settings import WorkersSettings

if TYPE_CHECKING:
    from delf.trust.decisions import Trust

STRATEGY: Final = "worker"
"""The name of the strategy that passes a whole task to a worker."""
_MAX_LISTED: Final = 40


class _Named(TypedDict):
    name: str
    instructions: str


class WorkerSpec(_Named, total=False):
    """A worker to create.

    ``connections`` are the names of your connections that the worker may use, ``result`` is a JSON
    Schema of the worker's answer, ``inputs`` are values for placeholders as {{topic}} in the
    instructions.
    """

    description: str
    connections: list[str]
    inputs: dict[str, dict[str, Any]]
    result: dict[str, Any]
    budget_usd: float


class Workers(Connection[WorkersSettings]):
    """Agents declared in files. Each runs its task with tools of its own.

    Args:
        folders: The folders with workers; the project's folder ``workers`` when omitted.
        allow_workers: The names or patterns of callable workers.
    """

    context_trust = "own"

    def __init__(self, **options: Any) -> None:
        # The action ``call`` needs no approval by default, because the called worker's own actions
        # may need approvals. The action ``create`` always needs an approval.
        if options.get("confirm") is None:
            options["confirm"] = False
        super().__init__(**options)
        # Without configured folders, workers are in the project's default folder.
        folders, folder_to_trust = self.settings.places("folders", FOLDER)
        self.registry = Registry(folders, folder_to_trust, current_trust())
        self.caller: WorkerDefinition | None = None
        """The worker that uses this connection; None for the agent itself."""
        self.pattern_groups: tuple[tuple[str, ...], ...] = (self.settings.allow_workers,)
        """The name patterns of the caller, then a group for each maker of a generated caller.

        A worker can be called only if each group has a pattern that matches the worker's name.
        """
        self.agent_workers: Workers = self
        """The agent's own connection: this connection, or the original of this copy."""
        self.workshop: Workshop[Workers] | None = None
        """Creates the connections of workers; None before the agent's first call."""
        self.plugin_context: PluginContext | None = None
        """The agent's context; None before the agent is started."""

    @classmethod
    def of_registry(cls, registry: Registry) -> Workers:
        """Return a connection that uses a registry, with the registry's trust decisions."""
        workers = cls(name="workers", folders=[str(folder) for folder in registry.folders])
        workers.registry = registry
        return workers

    def use_context(self, context: PluginContext) -> None:
        """Implements :class:`delf.protocols.connection.SupportsPluginContext`."""
        self.plugin_context = context

    def for_worker(self, worker: WorkerDefinition, patterns: tuple[str, ...]) -> Workers:
        """Return a copy of this connection for a worker.

        Args:
            worker: The worker, which calls other workers with the copy.
            patterns: Patterns of the names of callable workers.
        """
        workers = Workers.of_registry(self.registry)
        workers.caller = worker
        # A generated worker can call only workers that its maker can call. The maker is the agent
        # or worker that uses this connection (``self``).
        inherited_groups = self.pattern_groups if worker.generated else ()
        workers.pattern_groups = (patterns, *inherited_groups)
        workers.agent_workers = self.agent_workers
        # The user's ``allow`` and ``confirm`` apply to calls by workers, too.
        workers.allow = self.allow
        workers.confirm = self.confirm
        return workers

    async def context(self, task: str) -> str | None:
        """Describe the workers that scripts can call, one line each, for the prompt.

        Return None if the configuration does not allow the action ``call``.
        """
        actions = actions_of(type(self), self, self.name)
        call_action = next(action for action in actions if action.name == "call")
        if not is_allowed(self.allow, call_action):
            return None
        return await asyncio.to_thread(self._list_workers)

    def callable_workers(self) -> list[str]:
        """Return the names of the workers that can be called. Reads the workers' files."""
        return [name for name in self.registry.files() if self._may_call(name)]

    def _list_workers(self) -> str:
        lines: list[str] = []
        for name in self.registry.files():
            if not self._may_call(name):
                continue
            try:
                lines.append(f"- {_worker_line(self.registry.find(name))}")
            except ConfigurationError:
                lines.append(f"- {name}: its file is invalid, and it cannot be called")
        if not lines:
            return f"{self.name}: there are none yet"
        omitted_count = len(lines) - _MAX_LISTED
        if omitted_count > 0:
            lines[_MAX_LISTED:] = [f"… and {omitted_count} more"]
        return "\n".join([f"{self.name}.call:", *lines])

    def _may_call(self, name: str) -> bool:
        return all(
            any(fnmatchcase(name, pattern) for pattern in patterns)
            for patterns in self.pattern_groups
        )

    def _find_callable(self, name: str) -> WorkerDefinition:
        """Return a worker, or raise :class:`ToolRefusedError` if it may not be called here."""
        if not self._may_call(name):
            allowed = self.callable_workers()
            raise ToolRefusedError(
                f"worker {name[:80]!r} may not be called here. "
                f"Workers: {', '.join(allowed) or 'none'}"
            )
        return self.registry.find(name)

    def _shared_workshop(self, context: CallContext) -> Workshop[Workers]:
        """Return the agent's workshop, which creates the connections of all workers.

        Args:
            context: The context of the present call.
        """
        agent = self.agent_workers
        if agent.workshop is None:
            # The context has the agent's connections, because the first call comes from the agent:
            # a worker is started only after the workshop has made the worker's connections.
            agent.workshop = Workshop(
                agent.registry, context.tools, context.connect, os.environ, Workers.for_worker
            )
        return agent.workshop

    # -- what is asked about ----------------------------------------------------------------

    def check(self, call: ProposedCall) -> Verdict:
        """Implements :class:`delf.protocols.connection.SupportsCheck`."""
        try:
            if call.action == "create":
                return self._check_spec(call)
            return self._check_and_store_files(call)
        except (ConfigurationError, ToolRefusedError) as error:
            return Refused.of(error)

    def _check_spec(self, call: ProposedCall) -> Verdict:
        text = self._build_file_text(call.arguments["spec"], call.context)
        return NeedsApproval(reason="a new worker can be called from then on", preview=text)

    def _check_and_store_files(self, call: ProposedCall) -> Verdict:
        """Check a call's attachments, and store the content that the worker gets after approval.

        Returns:
            Whether the attachments need approval.

        Raises:
            ToolRefusedError: If a file is not allowed.
        """
        worker = self._find_callable(str(call.arguments["worker"]))
        paths: Sequence[str] = call.arguments.get("attachments") or ()
        if not paths or call.context is None:
            return Allowed()
        attachments = files_of.find(call.context, paths)
        files_of.check(worker, attachments)
        files_of.store_content(call.context, worker, attachments)
        lines = [f"  {item}" for item in attachments]
        preview = "\n".join(["attachments:", *lines])
        for item in attachments:
            reason = item.file.approval_reason
            if reason:
                return NeedsApproval(reason=reason, preview=preview)
        if worker.attachments.approval:
            reason = f"{worker.name} asks before it is given files"
            return NeedsApproval(reason=reason, preview=preview)
        return Allowed(preview=preview)

    # -- actions --------------------------------------------------------------------------

    async def actions(self) -> Sequence[Action]:
        """Return the actions.

        The action ``call`` accepts its parameter ``task`` also as ``input_data``, as in llm-do.
        """
        actions: list[Action] = []
        for each in await super().actions():
            if each.name == "call":
                validate = partial(_accept_input_data, each.validate)
                actions.append(replace(each, validate=validate))
            else:
                actions.append(each)
        return actions

    @action(effect="write", resumes=True, sinks=["worker"])
    async def call(
        self,
        worker: str,
        task: str | dict[str, Any] = DEFAULT_TASK,
        attachments: list[str] | None = None,
        inputs: dict[str, Any] | None = None,
        *,
        context: CallContext,
    ) -> Any:
        """Let a worker do a task, and wait for its answer.

        Args:
            worker: The name.
            task: What to do, in plain words or as data. The worker sees nothing else of the calling
                task, so include all that the worker needs.
            attachments: Files that the worker may read: names of this task's files, or paths of
                files in a connection.
            inputs: Values for the worker's inputs, by name.
            context: The task that calls.

        Returns:
            The answer: text, or data where it declares a shape.
        """
        definition = await asyncio.to_thread(self._find_callable, worker)
        files = await asyncio.to_thread(files_of.find, context, attachments or ())
        files_of.check(definition, files)
        instructions = definition.fill(inputs or {})
        worker_and_makers = await asyncio.to_thread(lineage, self.registry, definition)
        llm_of_worker = definition.llm(context.llm)
        used_llm = context.llm if llm_of_worker is None else llm_of_worker
        self._check_model(used_llm.model, worker_and_makers)
        tools = await asyncio.to_thread(
            self._shared_workshop(context).tools_of, definition, self.agent_workers
        )
        # A generated worker may not spend more than its maker, the maker's maker, and so on.
        budgets = [each.budget_usd for each in worker_and_makers if each.budget_usd is not None]
        task_text = task if isinstance(task, str) else json.dumps(task, ensure_ascii=False)
        folder = _copies_folder(context)
        try:
            copies = await _copy_attachments(folder, files, definition, context)
            strategy = await asyncio.to_thread(
                _strategy_of_worker, context, self.agent_workers.registry.trust
            )
            result = await context.delegate(
                task_text,
                tools=tools,
                llm=llm_of_worker,
                system_prompt=instructions,
                files=copies,
                timeout=definition.limits.timeout,
                worker=definition.name,
                strategy=strategy,
                budget_usd=min(budgets, default=None),
                retry_count=definition.limits.retries,
                rerun_count=definition.limits.reruns,
                output=definition.result,
                # "own": no text from outside. The task's text is an argument of this call, and the
                # arguments of a call are checked for texts from outside before the call is made.
                trust="own",
            )
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        result.raise_for_status(f"worker {definition.name!r}")
        return result.text if definition.result is None else result.value

    def _check_model(self, name: str, worker_and_makers: Sequence[WorkerDefinition]) -> None:
        """Check that a worker and its makers are compatible with a model.

        Args:
            name: The model's name.
            worker_and_makers: The worker, followed by its maker, the maker's maker, and so on.

        Raises:
            ToolRefusedError: If the model is not compatible.
        """
        plugin_context = self.agent_workers.plugin_context
        spellings: Collection[str] = ()
        if plugin_context is not None:
            spellings = plugin_context.installed_providers.spellings(name)
        for worker in worker_and_makers:
            worker.check_model(name, spellings)

    @action(effect="write", trust="own", sinks=["spec"])
    async def create(self, spec: WorkerSpec, *, context: CallContext) -> str:
        """Create a worker, which can be called as soon as this call has returned.

        A person has to approve this call.

        Args:
            spec: The worker's definition; ``connections`` may only name connections that you have.
            context: The task that calls.

        Returns:
            The name.
        """
        text = await asyncio.to_thread(self._build_file_text, spec, context)
        await asyncio.to_thread(self.agent_workers.registry.write, spec["name"], text)
        return spec["name"]

    def _build_file_text(self, spec: Mapping[str, Any], context: CallContext | None) -> str:
        """Validate a new worker, and return the text of its file.

        The maker of the worker is the agent or worker that uses this connection.

        Raises:
            ConfigurationError: If the worker would be invalid.
            ToolRefusedError: If the worker would have more rights than its maker.
        """
        worker_name = str(spec["name"])
        check_name(worker_name, "name")
        if not self._may_call(worker_name):
            raise ToolRefusedError(f"a worker {worker_name!r} could not be called here")
        self.agent_workers.registry.check_free(worker_name)
        names: list[str] = spec.get("connections", [])
        _check_maker_has(names, {} if context is None else context.tools)
        table = {key: value for key, value in spec.items() if key != "instructions"}
        if "workers" in names:
            # The new worker may call the workers that its maker may call. The file gets only the
            # patterns of the maker's own file: whenever the new worker is called, for_worker()
            # adds the patterns of the maker's maker, and so on.
            own_patterns_of_maker = self.pattern_groups[0]
            settings: dict[str, dict[str, Any]] = {name: {} for name in names}
            settings["workers"] = {"allow_workers": list(own_patterns_of_maker)}
            table["connections"] = settings
        if self.caller is not None:  # the maker is a worker, not the agent
            table["maker"] = self.caller.name
        return self.agent_workers.registry.text_of(table, str(spec["instructions"]))

    async def aclose(self) -> None:
        """Close the connections of workers."""
        workshop, self.workshop = self.workshop, None
        if workshop is not None:
            await workshop.aclose()


def _check_maker_has(names: Sequence[str], tools: Mapping[str, Any]) -> None:
    """Check that the maker of a worker has the connections that the worker shall get.

    Raises:
        ToolRefusedError: If a connection is missing.
    """
    for name in names:
        if name not in tools:
            raise ToolRefusedError(
                f"a worker has no more than its maker, which does not have {name!r}. "
                f"It has: {', '.join(tools) or 'nothing'}"
            )


def _strategy_of_worker(context: CallContext, trust: Trust) -> str | None:
    """Return the name of the strategy for a called worker's task; None for the caller's strategy.

    A caller with the strategy ``worker`` only passes its task on, so the called worker gets the
    strategy of the project's configuration. If that strategy is ``worker``, too, the called worker
    gets ``codegen``.

    Args:
        context: The context of the call.
        trust: The trust decisions, which tell whether the project's configuration may be used.
    """
    if context.strategy != STRATEGY:
        return None
    project = Agent.from_project(context.folder, connections=(), llm=context.llm, trust=trust)
    chosen = project.config.strategy
    # The strategy "worker" would only pass the task on to another worker.
    return "codegen" if chosen == STRATEGY else chosen


def _accept_input_data(
    validate: Callable[[Mapping[str, Any]], dict[str, Any]], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Validate arguments of ``call``, and accept ``input_data`` as another name of ``task``."""
    if "input_data" in arguments and "task" not in arguments:
        renamed = dict(arguments)
        renamed["task"] = renamed.pop("input_data")
        return validate(renamed)
    return validate(arguments)


def _worker_line(worker: WorkerDefinition) -> str:
    """Describe a worker in one line, for prompts and lists."""
    parts = [f"{worker.name}: {worker.description or 'no description'}"]
    if worker.inputs:
        inputs: list[str] = []
        for name, declared in worker.inputs.items():
            mark = "" if declared.default is None else "?"  # the value may be omitted
            inputs.append(f"{name} ({declared.type}){mark}")
        parts.append(f"inputs: {', '.join(inputs)}")
    if worker.attachments.suffixes:
        parts.append(f"attachments: {' '.join(worker.attachments.suffixes)}")
    if worker.result is not None:
        parts.append(f"answers with JSON of the schema {json.dumps(worker.result)}")
    return "; ".join(parts)


async def _copy_attachments(
    folder: Path,
    files: Sequence[files_of.AttachedFile],
    worker: WorkerDefinition,
    context: CallContext,
) -> list[Path]:
    """Copy the attachments of a call into a folder, and return the paths of the copies."""
    if not files:
        return []
    max_bytes = worker.attachments.max_total_bytes
    return await asyncio.to_thread(files_of.copy_to, folder, files, max_bytes, context)


def _copies_folder(context: CallContext) -> Path:
    """Return the folder for copies of a call's attachments; the same for a repeated call."""
    data = user_folder("data")
    return data / "workers" / f"{context.task_id}-{context.call_id}"
