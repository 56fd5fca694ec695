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
"""The name of the folder with recordings, next to the data set's file."""

AnyDataset = Dataset[Any, Any, Any]


class Recording(BaseModel):
    """The results of a task's calls and the facts for its prompt, stored as a JSON file.

    Args:
        calls: The calls of the task with their results.
        context: Facts for the prompt, such as database schemas, by connection name.
    """

    model_config = ConfigDict(extra="forbid")

    calls: list[RecordedResult]
    context: dict[str, str] = Field(default_factory=dict[str, str])


class CaseInputs(BaseModel):
    """The inputs of an evaluation case: a task, and the recorded results of its calls.

    Args:
        task: The task, in plain words.
        recording: The path of a :class:`Recording` file, relative to the data set's folder.
        calls: Further calls with results, which take precedence over the recording's calls.
        context: Facts for the prompt by connection name, which replace the connection's live facts.
        files: The paths of input files, relative to the data set's folder; the project's files
            when omitted.
        output: The JSON Schema of a typed answer.
        variables: The variables that the task's scripts can read, by name.
    """

    model_config = ConfigDict(extra="forbid")

    task: str = Field(min_length=1)
    recording: str | None = None
    calls: list[RecordedResult] = Field(default_factory=list[RecordedResult])
    context: dict[str, str] = Field(default_factory=dict[str, str])
    files: list[str] | None = None
    output: dict[str, Any] | None = None
    variables: dict[str, Any] = Field(default_factory=dict[str, Any])
    _given: object = None

    @property
    def given(self) -> object:
        """The inputs for a case's checks: as written in the data set, or else the case's task."""
        return self.task if self._given is None else self._given

    def with_given(self, given: object) -> CaseInputs:
        """Set the inputs for the checks, as written in the data set; return this object."""
        self._given = given
        return self

    def with_files(self, folder: Path, location: str) -> CaseInputs:
        """Return a copy with the content of the recording file, and with absolute paths of inputs.

        Args:
            folder: The folder of the data set.
            location: The name of the case, for error messages.

        Raises:
            ConfigurationError: If the recording is missing or malformed, or an input file is
                missing.
        """
        files: list[str] | None = None
        if self.files is not None:
            files = [str(inside(folder, name, location)) for name in self.files]
        for file in files or ():
            if not Path(file).is_file():
                raise ConfigurationError(f"{location}: there is no input file {file}")
        if self.recording is None:
            return self.model_copy(update={"files": files})
        recording = _read_recording(folder, self.recording, location)
        # The case has precedence over its recording. The case's own calls come first, because the
        # first result that fits a call is used.
        calls = [*self.calls, *recording.calls]
        context = {**recording.context, **self.context}
        update = {"files": files, "calls": calls, "context": context}
        return self.model_copy(update=update)


def _read_recording(folder: Path, name: str, location: str) -> Recording:
    """Read a recording file of a data set.

    Raises:
        ConfigurationError: If the file is missing or malformed.
    """
    path = inside(folder, name, location)
    content = read_file(path, folder, MAX_BYTES)
    if content is None:
        raise ConfigurationError(
            f"{location}: there is no recording {path}",
            hint="`delf evals add TASK` writes a case with its recording",
        )
    try:
        data: Any = from_jsonable(json.loads(content))
        return Recording.model_validate(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"{location}: {path} is not a recording: {_first_line(error)}"
        ) from None


def inside(folder: Path, name: str, location: str) -> Path:
    """Resolve a file name against the folder of a data set.

    Args:
        folder: The folder.
        name: The file name.
        location: The data set and its case that mention the file, for the error message.

    Raises:
        ConfigurationError: If the path leads out of the folder.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ConfigurationError(
            f"{location}: {name} is outside of {folder}", hint="put the file beside the data set"
        )
    return path


def read_data(path: Path) -> Any:
    """Parse the JSON or YAML file of a data set.

    Raises:
        ConfigurationError: If the file cannot be read or parsed; the error names the line.
    """
    folder = path.resolve().parent  # the folder of a link's target, so that links are read, too
    content = read_file(path, folder, MAX_BYTES) or b""
    try:
        text = content.decode("utf-8")
        if path.suffix == ".json":
            return json.loads(text)
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise ConfigurationError(f"{where}: {error.problem or 'not YAML'}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {_first_line(error)}") from None


def load(
    path: Path, template: str | None = None, checks: Sequence[type[Evaluator[Any, Any, Any]]] = ()
) -> AnyDataset:
    """Load a data set whose cases all have a name and :class:`CaseInputs`.

    Args:
        path: The file.
        template: A task text with placeholders for the case's inputs, such as ``Answer:
            {question}``, for data sets whose inputs are not tasks.
        checks: Additional check classes.

    Raises:
        ConfigurationError: If the file is invalid; the error names the file, the case and the
            problem.
    """
    data = read_data(path)
    check_types = (*OWN_CHECKS, *checks)
    _require_known_checks(path, data, check_types)
    try:
        dataset = AnyDataset.from_dict(data, check_types, default_name=path.stem)
    except ValidationError as error:
        raise ConfigurationError(
            f"{path}: {_problems(error)}", hint="docs/evals.md shows the format of a data set"
        ) from None
    except ExceptionGroup as error:
        text = "; ".join(_first_line(each) for each in error.exceptions)
        raise ConfigurationError(f"{path}: {text}") from None
    except ValueError as error:  # two cases have the same name
        raise ConfigurationError(f"{path}: {_first_line(error)}") from None
    if not dataset.cases:
        raise ConfigurationError(f"{path} has no case", hint="`delf evals add TASK` adds one")
    for number, case in enumerate(dataset.cases, 1):
        case.name = case.name or f"case {number}"
        label = f"{path}: {case.name}"
        case.inputs = _inputs(case.inputs, template, label).with_files(path.parent, label)
        if isinstance(case.expected_output, str):
            case.expected_output = case.expected_output.strip()
    return dataset


def _inputs(value: object, template: str | None, label: str) -> CaseInputs:
    """Convert the inputs of a case: a task text, a table with ``task``, or values for a template.

    Raises:
        ConfigurationError: If the value has another form or does not fit the template.
    """
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else None
    try:
        if template is not None:
            task = template.format(cast("Any", value), **(table or {}))
            # Checks get the inputs as the data set has them, instead of the task made from them.
            return CaseInputs(task=task).with_given(cast("object", value))
        return CaseInputs.model_validate({"task": value} if table is None else table)
    except ValidationError as error:
        raise ConfigurationError(
            f"{label}: inputs: {_problems(error)}",
            hint="inputs are the words of the task, or a table with task; for a table without "
            "task, make the task from its fields: --task 'Answer: {question}'",
        ) from None
    except (LookupError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{label}: --task does not fit the inputs: {error!r}") from None


def names_of_cases(data: Any) -> list[str]:
    """Return the names of the cases in the parsed file of a data set."""
    _dataset, *cases = _labelled_tables(data)
    return [str(case["name"]) for _label, case in cases if case.get("name")]


def _labelled_tables(data: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return (label, table) pairs for the data set itself and each case."""
    table = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    labelled_tables = [("the data set", table)]
    cases = table.get("cases")
    for case in cast("list[Any]", cases) if isinstance(cases, list) else ():
        if isinstance(case, dict):
            case_table = cast("dict[str, Any]", case)
            labelled_tables.append((str(case_table.get("name") or "a case"), case_table))
    return labelled_tables


def checks_of(module: ModuleType) -> list[type[Evaluator[Any, Any, Any]]]:
    """Return the check classes that a module defines.

    Raises:
        ConfigurationError: If the module defines no check.
    """
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    own_classes = [each for each in classes if each.__module__ == module.__name__]
    checks: list[type[Evaluator[Any, Any, Any]]] = [
        cast("type[Evaluator[Any, Any, Any]]", each)
        for each in own_classes
        if issubclass(each, Evaluator)
    ]
    if not checks:
        raise ConfigurationError(
            f"{module.__file__} defines no check",
            hint="a check is a dataclass that inherits from pydantic_evals.evaluators.Evaluator",
        )
    return checks


def _require_known_checks(
    path: Path, data: Any, check_types: Sequence[type[Evaluator[Any, Any, Any]]]
) -> None:
    """Raise an error with suggestions for an unknown name of a check.

    Raises:
        ConfigurationError: If a check is unknown, or the file is not a data set.
    """
    if not isinstance(data, dict):
        raise ConfigurationError(
            f"{path} is not a data set: it has no table with cases",
            hint="docs/evals.md shows the format of a data set",
        )
    names = [kind.get_serialization_name() for kind in (*check_types, *DEFAULT_EVALUATORS)]
    for label, row in _labelled_tables(data):
        for name in _names_of_checks(row.get("evaluators")):
            if name not in names:
                raise ConfigurationError(
                    f"{path}: {label} has an unknown check {name!r}{did_you_mean(name, names)}",
                    hint=f"checks: {', '.join(names)}; --checks FILE adds those of a Python file",
                )


def _names_of_checks(value: Any) -> list[str]:
    """Return the names of the checks in a list ``evaluators``.

    A check is written as its name, as ``{NAME: ARGUMENTS}``, or as a table with the key ``name``.
    """
    names: list[str] = []
    for item in cast("Sequence[Any]", value) if isinstance(value, list) else ():
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, dict):
            table = cast("dict[str, Any]", item)
            first_key = next(iter(table), "")
            names.append(str(table.get("name", first_key)))
    return names


def _problems(error: ValidationError) -> str:
    """Format the first three problems of a validation error, each with the path of its key."""
    lines: list[str] = []
    for problem in error.errors(include_url=False, include_input=False)[:3]:
        key_path = ".".join(map(str, problem["loc"]))
        lines.append(f"{key_path or 'it'}: {problem['msg']}")
    return "; ".join(lines)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
