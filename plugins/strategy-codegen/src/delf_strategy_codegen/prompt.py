"""The prompts: how to write scripts, and feedback on the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delf.messages import Message, assistant, user
from delf.protocols.sandbox import MAX_SCRIPT, Done, Failed, LimitReached, Rerun
from delf.protocols.strategy import ScriptResult

_RULES = """\
You do the user's task by writing one Python script that calls the tools below. \
{answer}

- The script runs in a sandbox: {language}, no network, os or sys; \
only harmless standard modules{libraries} can be imported.
- The tools are in scope; import or define none, and name nothing like one: \
`rows = await name.action(arg=1)`. Make independent calls with asyncio.gather. \
Any call takes desc="its purpose".
- Results are plain data; a date is a text unless its type says date or datetime.
- What the script prints is the answer for the user: complete text or Markdown \
in the task's language. Use only what the tools return; invent nothing. \
Where nothing is found, no tool is needed, or something essential is missing, print just that.
- A failing call raises ToolError; let it rise unless the script can go on without it.
- Files reach the user only by add_to_output_files(name, content): text, bytes, a dict or list as \
JSON, dicts as .csv or .xlsx ({{sheet: dicts}} for several); or by open() in the working folder.
- Look first, then act: guess no ids, names or shapes."""

_RERUN = """ Where a step needs data not yet seen, \
only read and print nothing: end with rerun(context, remaining), the data to see and what is left. \
You then write the next script with that context; variables stay, and prints stay in the answer."""

_ASKS = "\n- Calls marked [asks] wait for a person; a refusal raises ApprovalRejected."
_TYPE_NOTATION = (
    '\n- In types, ?"key" may be missing, and dict is a record that is not spelled out.'
)
_IN_FENCE = "Answer with the script alone, in one ```python block."
_SHOWN_CHARS = 1000
_IN_TOOL = "Answer with one call of run, whose code is the script, and nothing else."
_NO_SCRIPT = (
    "There was no Python script in that answer. Where no tool is needed, or something essential is "
    "missing, the script prints just that."
)
SILENT = "the script printed nothing, left no value and changed nothing"
_MAX_PRINTED = 2000
_MAX_DONE = 20


def script_rules(
    stubs: str,
    libraries: Sequence[str] = (),
    *,
    language: str = "Python 3.11 or newer",
    unsupported: str = "",
    in_tool: bool = False,
    can_rerun: bool = True,
) -> str:
    """Return the system prompt: the rules for scripts, and the tools.

    The prompt is the same for every task with the same tools, so that providers can cache it.

    Args:
        stubs: The stubs of the tools.
        libraries: The packages that scripts can import.
        language: The version of Python that runs the scripts.
        unsupported: The features of Python that are missing in the sandbox; empty for none.
        in_tool: Whether the model passes scripts to the tool ``run``.
        can_rerun: Whether a script may ask for a further script.
    """
    library_text = f" and {', '.join(libraries)}" if libraries else ""
    answer = _IN_TOOL if in_tool else _IN_FENCE
    rules = _RULES.format(language=language, libraries=library_text, answer=answer)
    if can_rerun:
        rules += _RERUN
    # In stubs, ``[asks]`` marks an action that needs approval, and ``?`` a key that may be missing.
    if "[asks]" in stubs:
        rules += _ASKS
    if '?"' in stubs:
        rules += _TYPE_NOTATION
    if unsupported:
        rules += f"\n- This sandbox runs a part of Python. It lacks {unsupported}."
    tools = f"```python\n{stubs}\n```" if stubs else "There are none; compute the answer."
    return f"{rules}\n\nTools:\n{tools}"


def unusable_answer_messages(
    reply: str, why: str = "", *, in_tool: bool = False
) -> tuple[Message, ...]:
    """Return the feedback on an answer with no script, or without one unambiguous script.

    Args:
        reply: The answer's text.
        why: The fault of the answer; empty for an answer without any script.
        in_tool: Whether the model has to give scripts by calling the tool ``run``.
    """
    instruction = _IN_TOOL if in_tool else "Answer with one ```python block."
    message = why or _NO_SCRIPT
    return assistant(_shortened_if_too_long(reply) or "(nothing)"), user(f"{message} {instruction}")


def requested_changes_messages(code: str, result: ScriptResult) -> tuple[Message, Message]:
    """Return the message with a script, and the changes to the script that a person requests.

    Args:
        code: The script.
        result: The script's result, with the requested changes.
    """
    lines = ["A person looked at the script and its calls, and asks for changes:"]
    lines += [f"- {text}" for text in result.changes_requested]
    if not result.variables_alive:
        lines.append("The script's variables are lost; read again what you need.")
    elif isinstance(result.outcome, (Done, Failed, Rerun)):
        lines += _variable_lines(result.outcome.variables)
    if result.printed.strip():
        lines.append(f"It had printed (the user will not see this):\n{_cap(result.printed)}")
    lines += _lines_about_earlier_changes(result.changes)
    lines.append(
        "Write another script that does the task with these changes and gives the whole answer. "
        "Calls that succeeded before have had their effect; do not repeat those that change things."
    )
    return assistant(_fence_code(code)), user("\n".join(lines))


def retry_messages(
    code: str,
    outcome: Failed | LimitReached,
    printed: str,
    *,
    variables_alive: bool,
    changes: Sequence[str] = (),
) -> tuple[Message, Message]:
    """Return the message with a script that failed, and the feedback for the model.

    Args:
        code: The script.
        outcome: The failure.
        printed: The text that the script printed, which the user will not see.
        variables_alive: Whether the next script can use the variables of this one.
        changes: The write calls that were made, in order.
    """
    kind = outcome.kind if isinstance(outcome, Failed) else f"{outcome.limit} limit"
    lines = [f"The script failed: {kind}: {outcome.message}"]
    if outcome.line is not None:
        lines.append(f"Line {outcome.line}: {outcome.source or ''}".rstrip())
    if variables_alive:
        lines += _variable_lines(outcome.variables)
    else:
        lines.append("Its variables are lost; read again what you need.")
    if printed.strip():
        lines.append(f"It had printed (the user will not see this):\n{_cap(printed)}")
    lines += _lines_about_earlier_changes(changes)
    lines.append(
        "Write the script that completes the task now and gives the whole answer. "
        "Calls that succeeded before have had their effect; do not repeat those that change things."
    )
    return assistant(_fence_code(code)), user("\n".join(lines))


def silent_messages(
    code: str, returned: Sequence[str], variables: Mapping[str, str]
) -> tuple[Message, Message]:
    """Return the message with a script that printed nothing, and the feedback for the model.

    Args:
        code: The script.
        returned: A line for each call of the script, with its result.
        variables: A mapping from name of a variable to its type.
    """
    lines = [f"The script ran, and there is no answer: {SILENT}."]
    if returned:
        listed = "\n".join(f"- {line}" for line in returned[:_MAX_DONE])
        lines.append(f"Its calls:\n{listed}")
    lines += _variable_lines(variables)
    lines.append("Write a script that prints the answer. Where nothing was found, it prints that.")
    return assistant(_fence_code(code)), user("\n".join(lines))


def refused_answer_messages(code: str, text: str, problem: str) -> tuple[Message, Message]:
    """Return a script and the feedback that its answer was refused, such as by an output schema.

    Args:
        code: The script.
        text: The refused answer, which the user will not see.
        problem: The fault of the answer.
    """
    printed = f"It had printed (the user will not see this):\n{_cap(text)}\n" if text else ""
    message = (
        f"The script ran, and its answer is refused: {problem}\n{printed}"
        "Its variables are still there, and its calls keep their effect. Write a script that gives "
        "the complete, corrected answer, and nothing else."
    )
    return assistant(_fence_code(code)), user(message)


def crash_messages(code: str, message: str, changes: Sequence[str] = ()) -> tuple[Message, Message]:
    """Return two messages: the model's script that crashed its sandbox, and the feedback.

    Args:
        code: The script.
        message: The reason for the crash, as far as known.
        changes: The write calls that were made before the crash, in order.
    """
    outcome = LimitReached(limit="sandbox", message=message)
    return retry_messages(code, outcome, "", variables_alive=False, changes=changes)


def rerun_messages(
    code: str, outcome: Rerun, printed: str, *, is_last: bool = False
) -> tuple[Message, Message]:
    """Return the message with the model's script that called ``rerun``, and the message after it.

    A script calls ``rerun`` to show data to the model, and ends. The second message has this data,
    and asks the model for the next script.

    Args:
        code: The script.
        outcome: The data, and the remaining work.
        printed: The text that the task's scripts have printed so far.
        is_last: Whether the next script may not call ``rerun`` again.
    """
    lines = [f"The script stopped to look at data. It learned:\n{outcome.context}"]
    if outcome.carry:
        lines.append(f"It wants you to use: {', '.join(outcome.carry)}")
    lines += _variable_lines(outcome.variables)
    if printed.strip():
        lines.append(f"Printed so far (the user sees it above what comes):\n{_cap(printed)}")
    if is_last:
        lines.append(
            "No rerun is left: the next script has to finish the task, with what is known."
        )
    lines.append(f"Write the next script, for what remains:\n{outcome.remaining}")
    return assistant(_fence_code(code)), user("\n".join(lines))


def _lines_about_earlier_changes(changes: Sequence[str]) -> list[str]:
    """Return the lines of a list of the write calls that were made; no lines without such calls."""
    if not changes:
        return []
    lines = ["The script has already made these changes; do not repeat them:"]
    omitted_count = len(changes) - _MAX_DONE
    if omitted_count > 0:
        lines.append(f"- … {omitted_count:,} calls")
    lines += [f"- {call}" for call in changes[-_MAX_DONE:]]
    return lines


def _variable_lines(variables: Mapping[str, str]) -> list[str]:
    if not variables:
        return ["No variables are alive."]
    listed = "\n".join(f"- {name}: {kind}" for name, kind in variables.items())
    return [f"Variables still alive, use them as they are:\n{listed}"]


def _shortened_if_too_long(text: str) -> str:
    """Return a text unchanged, or its beginning and length if it is longer than any script."""
    if len(text) <= MAX_SCRIPT:
        return text
    return f"{text[:_SHOWN_CHARS]}\n… ({len(text):,} letters)"


def _fence_code(code: str) -> str:
    fence = "```"
    while fence in code:
        fence += "`"
    return f"{fence}python\n{code}\n{fence}"


def _cap(text: str) -> str:
    text = text.strip()
    if len(text) <= _MAX_PRINTED:
        return text
    return f"{text[:_MAX_PRINTED]}… (cut)"
