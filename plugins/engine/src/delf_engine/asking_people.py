"""``ask``: the built-in call with which a script asks a person a question.

The gate never makes this call: the person's answer is its result, like the result of a call that a
person declares as already done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from delf.errors import ToolRefusedError
from delf.events import ASK
from delf.questions import Question
from delf.tools.action import Action
from delf.tools.signature import Parameter
from delf.types import Permission

_SUMMARY: Final = (
    "Asks the user and waits. Ask rather than guess or give up where the task leaves open what "
    "only its user can tell; no permission, and nothing that a tool can tell."
)
_PARAMETERS: Final = (
    Parameter(name="question", type_text="str"),
    Parameter(name="options", type_text="list[str]", default_text="[]"),
    Parameter(name="answer", type_text='"text" | "yes/no" | "number"', default_text='"text"'),
    Parameter(name="default", default_text="None"),
)
_TYPES: Final = (str, int, float, bool)


def _schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "question": {"type": "string"},
            "options": {"type": "array", "items": {"type": "string"}},
            "answer": {"enum": ["text", "yes/no", "number"]},
            "default": {"description": "The answer if nobody answers."},
        },
        "required": ["question"],
        "additionalProperties": False,
    }


def _validated(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a question, without None values and an empty list of options.

    Raises:
        ToolRefusedError: If a person cannot answer the question.
    """
    parameter_names = [parameter.name for parameter in _PARAMETERS]
    for name in arguments:
        if name not in parameter_names:
            raise ToolRefusedError(f"{ASK} has no parameter {name!r}; {ASK}{_ACTION.signature}")
    if "question" not in arguments:
        raise ToolRefusedError(f"{ASK} needs a question; {ASK}{_ACTION.signature}")
    values = {name: value for name, value in arguments.items() if value is not None}
    if not isinstance(values.get("question"), str):
        raise ToolRefusedError(f"the question of {ASK} is a text")
    options = values.get("options", ())
    if not isinstance(options, (list, tuple)):
        raise ToolRefusedError(f"options of {ASK} is a list of texts")
    texts = [_option(option) for option in cast("Sequence[object]", options)]
    default = values.get("default")
    if default is not None and not isinstance(default, _TYPES):
        raise ToolRefusedError(f"default of {ASK} is one answer: a text, a number or a bool")
    if texts:
        values["options"] = texts
    else:
        values.pop("options", None)  # an empty list allows any answer, like no list
    Question.from_arguments(values).check()
    return values


def _option(option: object) -> str:
    """Return an option of a question, which has to be a text."""
    # The answer is a text: if a script compared the answer with a number, the two would never be
    # equal.
    if isinstance(option, str):
        return option
    raise ToolRefusedError(
        f"an option of {ASK} is of the type {type(option).__name__}: give its distinguishing value "
        "as a text, and map the answer back to the option"
    )


async def _refuse_call(**_: Any) -> None:
    raise ToolRefusedError("a question is answered by a person and never called")


_ACTION: Final = Action(
    name=ASK,
    permission=ASK,
    effect="read",
    summary=_SUMMARY,
    parameters=_PARAMETERS,
    returns="str | bool | int | float",
    validate=_validated,
    call=_refuse_call,
    schema=_schema,
    trust="own",
)


class AskTool:
    """The connection with the only action ``ask``, by which a script asks a person."""

    is_function = True
    name = ASK
    summary = "Questions for the user."
    allow: Permission = None
    confirm: Permission = False

    async def actions(self) -> tuple[Action, ...]:
        """Return the only action."""
        return (_ACTION,)
