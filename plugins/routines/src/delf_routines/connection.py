"""``RoutineTools``: the routines of a project as tools, each an action with its parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from delf import CallContext, Connection
from delf.errors import ConfigurationError, DelfError, ToolExecutionError, ToolRefusedError
from delf.settings import current_folder, current_trust
from delf.tools.action import Action, strictest
from delf.tools.signature import Parameter as Argument
from delf.types import Effect, Permission
from delf_cli.routines import ROUTINE, call_text
from delf_routines.routine import Parameter, ParameterType, Routine, Value
from delf_routines.store import RoutineStore

# The types of parameters in Python and in JSON Schema.
_PYTHON_TYPES: Final[Mapping[ParameterType, str]] = {
    "text": "str",
    "date": "str",
    "integer": "int",
    "number": "float",
}
_JSON_TYPES: Final[Mapping[ParameterType, str]] = {
    "text": "string",
    "date": "string",
    "integer": "integer",
    "number": "number",
}
_DESCRIPTION_OF_DATE: Final = "A date, as 2026, 2026-10 or 2026-10-31."


class RoutineTools(Connection):
    """A connection whose actions are the project's routines, which run without a model.

    A routine can use only the tools of the calling task, and its calls need the same approvals.
    """

    @classmethod
    def type_name(cls) -> str:
        """Return ``routines``, the type and default name of the connection."""
        return "routines"

    def __init__(self, *, confirm: Permission = None, **options: Any) -> None:
        # A routine needs no approval by default, because each call that it makes may need one.
        super().__init__(confirm=False if confirm is None else confirm, **options)
        self._store = RoutineStore(current_folder(), current_trust())
        # The versions of the files at the last call of actions(); None before the first one.
        self._shown_versions: Sequence[object] | None = None
        self._unreadable_notes: list[str] = []

    async def actions(self) -> Sequence[Action]:
        """Return an action for each routine whose file is valid and trusted."""
        return await asyncio.to_thread(self._read_actions)

    def is_stale(self) -> bool:
        """Return True if a routine's file was added, changed or removed."""
        return self._shown_versions is not None and self._shown_versions != self._store.versions()

    def notices(self) -> Sequence[str]:
        """Return messages about routines that cannot be called."""
        return tuple(self._unreadable_notes)

    def _read_actions(self) -> list[Action]:
        self._shown_versions = self._store.versions()
        self._unreadable_notes = []
        actions: list[Action] = []
        for name in self._store.names():
            try:
                actions.append(self._action(self._store.find(name)))
            except DelfError as error:
                self._unreadable_notes.append(
                    f"{self.name}.{name} cannot be called: {error.message}"
                )
        return actions

    def _action(self, routine: Routine) -> Action:
        """Convert a routine to an action with the strictest effect of the routine's actions."""
        effects: list[Effect] = [action.effect for action in routine.actions.values()]
        return Action(
            name=routine.name,
            permission=routine.name,
            effect=strictest(effects) if effects else "read",
            summary=routine.title,
            parameters=tuple(map(_argument, routine.parameters.values())),
            returns="str",
            validate=_validator(routine),
            call=_caller(routine.name),
            schema=lambda: _schema(routine),
            defaults={name: item.default for name, item in routine.parameters.items()},
            # The name of the parameter that receives the CallContext; see _caller().
            context="context",
            # The routine runs as a child task. If the call is interrupted and made again, it
            # continues the child task instead of repeating the routine's calls.
            resumes=True,
            version=routine.text(),
        )


def _argument(item: Parameter) -> Argument:
    return Argument(
        name=item.name,
        type_text=_PYTHON_TYPES[item.type],
        default_text=repr(item.default),
        doc=_DESCRIPTION_OF_DATE if item.type == "date" else "",
    )


def _schema(routine: Routine) -> dict[str, Any]:
    """Return the JSON Schema of a routine's arguments."""
    properties: dict[str, Any] = {}
    for name, item in routine.parameters.items():
        properties[name] = {"type": _JSON_TYPES[item.type], "default": item.default}
        if item.pattern is not None:
            properties[name]["pattern"] = f"^(?:{item.pattern})$"
        if item.type == "date":
            properties[name]["description"] = _DESCRIPTION_OF_DATE
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _validator(routine: Routine) -> Callable[[Mapping[str, Any]], dict[str, Value]]:
    """Return a function that converts a call's arguments to the types of the parameters."""

    def validate(given: Mapping[str, Any]) -> dict[str, Value]:
        try:
            values = routine.values(given)
        except ConfigurationError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise ToolRefusedError(f"{error.message}{hint}") from None
        # Omitted parameters get their defaults when the routine runs.
        return {name: values[name] for name in given}

    return validate


def _caller(name: str) -> Callable[..., Any]:
    """Return the function that an action calls to run the routine with the given name."""

    async def call(context: CallContext, **given: Value) -> str:
        """Run the routine as a child task, and return its answer."""
        tools = list(context.tools.values())
        # The strategy reads the routine's name and the arguments from the text of the child task.
        task_text = call_text(name, given)
        # The text has only the routine's name and the script's arguments, so it is trusted.
        result = await context.delegate(task_text, tools=tools, strategy=ROUTINE, trust="own")
        has_succeeded: bool = result.status
        if not has_succeeded:
            raise ToolExecutionError(f"the routine {name} failed: {result.error}")
        return result.text

    return call
