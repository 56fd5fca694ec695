"""Data sets: YAML or JSON files in the format of pydantic-evals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_evals import Dataset
from pydantic_evals.evaluators import Evaluator
from pydantic_evals.evaluators.common import DEFAULT_EVALUATORS

from delf.errors import ConfigurationError, did_you_mean
from delf.trust.folders import read_file
from delf.values.encoding import from_jsonable
from delf_evals.checks import OWN_CHECKS
from delf_evals.places import MAX_BYTES
from delf_evals.recorded import RecordedResult

RECORDINGS: Final = "recordings"
"""The folder of recorded results, beside the data set."""

AnyDataset = Dataset[Any, Any, Any]


class Recording(BaseModel):
    """The world that a task found, as a file beside the data set.

    Args:
        calls: The results of its calls.
        context: The facts for its prompt, by connection.
    """

    model_config = ConfigDict(extra="forbid")

    calls: list[RecordedResult]
    context: dict[str, str] = Field(default_factory=dict[str, str])


class CaseInputs(BaseModel):
    """The inputs of a case: a task, and the world that it finds.

    Args:
        task: The task, in plain words.
        recording: The file of a recording, with results of calls and facts for the prompt.
        calls: Further results of calls, which take precedence over those of the recording.
        context: Facts for the prompt by connection, instead of live ones such as a schema.
        files: Input files.
        output: The JSON Schema of a typed answer.
        variables: Variables of the task's scripts.
    """

    model_config = ConfigDict(extra="forbid")

    task: str = Field(min_length=1)
    recording: str | None = None
    calls: list[RecordedResult] = Field(default_factory=list[RecordedResult])
    context: dict[str, str] = Field(default_factory=dict[str, str])
    files: list[str] = Field(default_factory=list[str])
    output: dict[str, Any] | None = None
    variables: dict[str, Any] = Field(default_factory=dict[str, Any])
    _given: object = None

    @property
    def given(self) -> object:
        """The inputs that checks see: those of a foreign data set, else the task."""
        return self.task if self._given is None else self._given

    def of(self, given: object) -> CaseInputs:
        """Return the inputs, made from those of a foreign data set."""
        self._given = given
        return self

    def with_files(self, folder: Path, place: str) -> CaseInputs:
        """Return a copy with the results and facts of the recording, and paths of input files.

        Args:
            folder: The folder of the data set.
            place: The case, for messages.

        Raises:
            ConfigurationError: If the recording is missing or malformed, or an input file is
                missing.
        """
        files = [str(inside(folder, name, place)) for name in self.files]
        for file in files:
            if not Path(file).is_file():
                raise ConfigurationError(f"{place}: there is no input file {file}")
        if self.recording is None:
            return self.model_copy(update={"files": files})
        path = inside(folder, self.recording, place)
        content = read_file(path, folder, MAX_BYTES)
        if content is None:
            raise ConfigurationError(
                f"{place}: there is no recording {path}",
                hint="`delf evals add TASK` writes a case with its recording",
            )
        try:
            data: Any = from_jsonable(json.loads(content))
            recording = Recording.model_validate(data)
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigurationError(
                f"{place}: {path} is not a recording: {_first_line(error)}"
            ) from None
        calls, context = [*self.calls, *recording.calls], {**recording.context, **self.context}
        update = {"files": files, "calls": calls, "context": context}
        return self.model_copy(update=update)


def inside(folder: Path, name: str, place: str) -> Path:
    """Return the path of a file in the folder of a data set.

    Raises:
        ConfigurationError: If the file is elsewhere: a data set names no other file of the machine.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ConfigurationError(
            f"{place}: {name} is outside of {folder}", hint="put the file beside the data set"
        )
    return path


def read_data(path: Path) -> Any:
    """Parse the file of a data set.

    Raises:
        ConfigurationError: If the file is not readable or not YAML, with the line.
    """
    content = read_file(path, path.resolve().parent, MAX_BYTES) or b""
    try:
        text = content.decode("utf-8")
        return json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise ConfigurationError(f"{where}: {error.problem or 'not YAML'}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {_first_line(error)}") from None


def load(
    path: Path, template: str | None = None, checks: Sequence[type[Evaluator[Any, Any, Any]]] = ()
) -> AnyDataset:
    """Load a data set, with a name and :class:`CaseInputs` for each case.

    Args:
        path: The file.
        template: The text of tasks, with the fields of other inputs: ``Answer: {question}``.
        checks: Further checks, written in Python.

    Raises:
        ConfigurationError: If the file is invalid; the error names the file, the case and the
            problem.
    """
    data = read_data(path)
    own = (*OWN_CHECKS, *checks)
    _check_names(path, data, own)
    try:
        dataset = AnyDataset.from_dict(data, own, default_name=path.stem)
    except ValidationError as error:
        raise ConfigurationError(
            f"{path}: {_problems(error)}", hint="docs/evals.md shows the format of a data set"
        ) from None
    except ExceptionGroup as error:
        text = "; ".join(_first_line(each) for each in error.exceptions)
        raise ConfigurationError(f"{path}: {text}") from None
    except ValueError as error:  # two cases have one name
        raise ConfigurationError(f"{path}: {_first_line(error)}") from None
    if not dataset.cases:
        raise ConfigurationError(f"{path} has no case", hint="`delf evals add TASK` adds one")
    for number, case in enumerate(dataset.cases, 1):
        case.name = case.name or f"case {number}"
        place = f"{path}: {case.name}"
        case.inputs = _inputs(case.inputs, template, place).with_files(path.parent, place)
        if isinstance(case.expected_output, str):
            case.expected_output = case.expected_output.strip()
    return dataset


def _inputs(value: object, template: str | None, place: str) -> CaseInputs:
    """Return a case's inputs: a table with a task, a text, or a value for a task's template.

    Raises:
        ConfigurationError: If the value is not of these, or does not fit the template.
    """
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    try:
        if template is not None:
            task = template.format(cast("Any", value), **(table or {}))
            return CaseInputs(task=task).of(cast("object", value))
        return CaseInputs.model_validate({"task": value} if table is None else table)
    except ValidationError as error:
        raise ConfigurationError(
            f"{place}: inputs: {_problems(error)}",
            hint="inputs are the words of the task, or a table with task; for other tables write "
            "--task 'Answer: {question}' with their fields",
        ) from None
    except (LookupError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{place}: --task does not fit the inputs: {error!r}") from None


def names_of_cases(data: Any) -> list[str]:
    """Return the names of the cases in the data of a file."""
    return [str(row["name"]) for _, row in _labelled(data)[1:] if row.get("name")]


def _labelled(data: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the data set and its cases, each with a label for messages."""
    table = cast("dict[str, Any]", data if isinstance(data, dict) else {})
    cases = table.get("cases")
    listed = cast("list[Any]", cases if isinstance(cases, list) else [])
    rows = [cast("dict[str, Any]", case) for case in listed if isinstance(case, dict)]
    named_rows = [(str(row.get("name") or "a case"), row) for row in rows]
    return [("the data set", table), *named_rows]


def checks_of(module: ModuleType) -> list[type[Evaluator[Any, Any, Any]]]:
    """Return the checks that a module defines.

    Raises:
        ConfigurationError: If the module defines no check.
    """
    checks: list[type[Evaluator[Any, Any, Any]]] = [
        cast("type[Evaluator[Any, Any, Any]]", value)
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Evaluator)
        and value.__module__ == module.__name__
    ]
    if not checks:
        raise ConfigurationError(
            f"{module.__file__} defines no check",
            hint="a check is a dataclass that inherits from pydantic_evals.evaluators.Evaluator",
        )
    return checks


def _check_names(path: Path, data: Any, own: Sequence[type[Evaluator[Any, Any, Any]]]) -> None:
    """Check the names of checks, so that the error for an unknown name can suggest one.

    Raises:
        ConfigurationError: For an unknown check.
    """
    if not isinstance(data, dict):
        raise ConfigurationError(
            f"{path} is not a data set: it has no table with cases",
            hint="docs/evals.md shows the format of a data set",
        )
    names = [kind.get_serialization_name() for kind in (*own, *DEFAULT_EVALUATORS)]
    for place, row in _labelled(data):
        for name in _check_names_of(row.get("evaluators")):
            if name not in names:
                raise ConfigurationError(
                    f"{path}: {place} has an unknown check {name!r}{did_you_mean(name, names)}",
                    hint=f"checks: {', '.join(names)}; --checks FILE adds those of a Python file",
                )


def _check_names_of(value: Any) -> list[str]:
    names: list[str] = []
    for item in cast("Sequence[Any]", value) if isinstance(value, list) else ():
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, dict):
            table = cast("dict[str, Any]", item)
            names.append(str(table.get("name") if "name" in table else next(iter(table), "")))
    return names


def _problems(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_input=False)
    places = [f"{'.'.join(map(str, item['loc'])) or 'it'}: {item['msg']}" for item in problems[:3]]
    return "; ".join(places)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
