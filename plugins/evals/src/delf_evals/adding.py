"""Cases made from tasks of the journal."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from delf.errors import ConfigurationError
from delf.events import (
    CallStarted,
    Event,
    TaskFinished,
    TaskQueued,
    TaskStarted,
    start_event,
)
from delf.machine.own_files import replace_file
from delf.protocols.journal import TaskRecord
from delf.types import TaskState
from delf.values.encoding import dumps
from delf_cli.ids import short_id
from delf_engine.inputs import find_inputs, recorded_files
from delf_engine.past_calls import past_calls
from delf_evals.datasets import RECORDINGS, names_of_cases, read_data
from delf_evals.places import write

# The characters besides a newline that end a line in YAML.
_OTHER_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
_RUBRIC = "The output says the same as the expected output; other words and forms are fine."


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes texts of several lines as block scalars (``|``)."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _OTHER_LINE_BREAKS.search(text):  # only double quotes escape them
        style = '"'
    return cast("Any", dumper).represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def add_task(
    path: Path,
    record: TaskRecord,
    events: Sequence[Event],
    context: Mapping[str, str],
    *,
    name: str,
    judged: bool,
) -> dict[str, Any]:
    """Append a finished task as an evaluation case to a data set; return the case.

    The results of the task's calls are written as a recording beside the data set. The case expects
    the answer of the task, and those calls of the task that change something.

    Args:
        path: The YAML file of the data set; created if missing.
        record: The task.
        events: The task's events.
        context: Facts for the prompt, such as database schemas, by connection name.
        name: The case's name.
        judged: Whether a model compares the answers; otherwise the answers must be equal.

    Raises:
        ConfigurationError: If the task cannot become a case, or the file is not a YAML data set.
    """
    first_event, last_event = _start_and_end(record, events)
    if path.suffix == ".json":
        raise ConfigurationError(f"{path} is JSON", hint="cases are added to YAML: --to NAME")
    if path.exists() and name in names_of_cases(read_data(path)):
        raise ConfigurationError(f"{path} has a case {name!r}", hint="choose another: --name NAME")
    folder = path.parent / RECORDINGS
    recording = folder / f"{short_id(record.task_id)}.json"
    _write_recording(recording, events, context)
    inputs: dict[str, Any] = {
        "task": first_event.task,
        "recording": f"{RECORDINGS}/{recording.name}",
    }
    paths = recorded_files(first_event.setup)
    if paths is not None:
        files = _copy_files(paths, folder / short_id(record.task_id))
        inputs["files"] = [f"{RECORDINGS}/{file}" for file in files]
    for field in ("output", "variables"):
        if first_event.setup.get(field) is not None:  # also if it is {}, which is a JSON Schema
            inputs[field] = first_event.setup[field]
    has_typed_answer = "output" in inputs
    case: dict[str, Any] = {"name": name, "inputs": inputs}
    case["expected_output"] = last_event.value if has_typed_answer else last_event.text.strip()
    case["evaluators"] = _checks(events, judged=judged)
    # The answer may have values that the YAML dumper does not know, such as decimals.
    case_of_plain_values = json.loads(json.dumps(case, default=str))
    _append_case(path, case_of_plain_values)
    return case


def _write_recording(path: Path, events: Sequence[Event], context: Mapping[str, str]) -> None:
    """Write the results of a task's calls, and the facts for its prompt, to a file."""
    calls = [vars(call) for call in past_calls(events)]
    data = {"calls": calls, "context": dict(context)}
    # dumps() writes one long line, with tags for types beyond JSON's; indent the JSON for people.
    text = json.dumps(json.loads(dumps(data)), indent=1, ensure_ascii=False)
    write(path, f"{text}\n")


def _checks(events: Sequence[Event], *, judged: bool) -> list[Any]:
    """Return checks of the answer and of the actions that changed something.

    If no call of the task changed anything, a check forbids changes.
    """
    answer_check: Any = "EqualsExpected"
    if judged:
        answer_check = {"LLMJudge": {"rubric": _RUBRIC, "include_expected_output": True}}
    started_calls = [event for event in events if isinstance(event, CallStarted)]
    changing_actions = [call.action for call in started_calls if call.effect != "read"]
    call_checks: list[Any] = [{"Called": action} for action in dict.fromkeys(changing_actions)]
    if not call_checks:
        call_checks = ["NoChanges"]
    return [answer_check, *call_checks]


def _start_and_end(
    record: TaskRecord, events: Sequence[Event]
) -> tuple[TaskQueued | TaskStarted, TaskFinished]:
    """Return the first and the last event of a task of which a case can be made.

    Raises:
        ConfigurationError: If the task is not done, or if it continues a conversation.
    """
    first_event = start_event(events)
    last_event = next((e for e in reversed(events) if isinstance(e, TaskFinished)), None)
    task = f"the task {short_id(record.task_id)}"
    if first_event is None or last_event is None:
        raise ConfigurationError(
            f"{task} is {record.state} and has no end yet", hint="wait for its end, or resume it"
        )
    if record.state is not TaskState.DONE:
        raise ConfigurationError(
            f"{task} is {record.state}, but an evaluation case needs a task that is done",
            hint="do the task again, and add that one",
        )
    if first_event.conversation is not None:
        raise ConfigurationError(
            f"{task} continues a conversation, which a case does not have",
            hint="say the whole task at once: delf run TASK",
        )
    return first_event, last_event


def _copy_files(paths: Sequence[Path], folder: Path) -> list[str]:
    """Copy input files to a folder, under the names that scripts know.

    Returns:
        The paths of the copies, relative to the folder's parent.

    Raises:
        ConfigurationError: If a file cannot be read or copied.
    """
    names: list[str] = []
    for path, name in find_inputs([str(path) for path in paths]).items():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, folder / name)
        except OSError as error:
            raise ConfigurationError(
                f"the task's input file {path} cannot be copied: {error.strerror}"
            ) from None
        names.append(f"{folder.name}/{name}")
    return names


def _append_case(path: Path, case: Mapping[str, Any]) -> None:
    """Append a case to the list ``cases`` of a YAML file, keeping all other text unchanged.

    Raises:
        ConfigurationError: If the file has no such list.
    """
    item: str = yaml.dump([dict(case)], Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    if not path.exists():
        write(path, f"cases:\n{item}")
        return
    text = path.read_text(encoding="utf-8")
    # Unlike load(), compose() tells where in the text each item is.
    root: Any = cast("Any", yaml).compose(text)
    root_pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    cases = next((value for key, value in root_pairs if key.value == "cases"), None)
    if not isinstance(cases, yaml.SequenceNode) or cases.flow_style or not cases.value:
        raise ConfigurationError(
            f"{path} has no block list of cases to append to",
            hint="write cases: with an item on lines of its own, or choose another file: --to NAME",
        )
    indent = " " * cases.start_mark.column
    lines = text.splitlines(keepends=True)
    end_line = int(cases.value[-1].end_mark.line)
    # YAML counts the empty lines after the last case as a part of the case.
    while end_line > 0 and not lines[end_line - 1].strip():
        end_line -= 1
    indented_case = "".join(f"{indent}{line}\n" for line in item.splitlines())
    text_before = "".join(lines[:end_line])
    line_break = "" if text_before.endswith("\n") else "\n"
    text_after = "".join(lines[end_line:])
    # Resolve a symbolic link: replace_file() would replace the link instead of its target.
    replace_file(path.resolve(), f"{text_before}{line_break}{indented_case}{text_after}")
