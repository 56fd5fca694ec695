"""``Routine``: a script with its parameters and the actions that it was written for, as a file.

A file is plain Python below a header in comments::

    # /// routine
    # title = "Revenue of a month"
    # task = "How much did we sell in 2026-10?"
    #
    # [parameters.month]
    # type = "date"
    # default = "2026-10"
    #
    # [actions."shop.query"]
    # effect = "read"
    # parameters = ["statement: str"]
    # returns = "list"
    # empty = false
    # ///
    print(shop.query(f"select … where month = '{month}'"))
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from delf.errors import ConfigurationError, did_you_mean
from delf.types import Effect
from delf_routines.flow import value_patterns

NO_MODEL: Final = "none:no model"
"""The name of the placeholder model for routines in a project without a model."""
ParameterType = Literal["text", "number", "integer", "date"]
OnFailure = Literal["fail", "repair"]
Value = str | int | float

# Unicode categories of characters that are invisible or reorder text.
_HIDDEN: Final = ("Cf", "Co", "Cs")
# Invisible characters that some scripts and emoji need.
_JOINERS: Final = "\u200c\u200d"
_BEGIN: Final = "# /// routine"
_END: Final = "# ///"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DATE: Final = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?", re.ASCII)
_CONFIG: Final = ConfigDict(extra="forbid", strict=True)
# Pydantic's error types for unknown keys.
_UNKNOWN_KEY_ERRORS: Final = ("extra_forbidden", "unexpected_keyword_argument")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a routine, which is a variable of its script.

    Args:
        name: The name of the variable.
        type: The type of the values. A ``date`` is a year, month or day, such as ``2026-10``.
        default: The value in the original task.
        pattern: A regex that texts other than the default must match. None if the script uses the
            text only as a complete value, and never as a part of another text.
    """

    name: str
    type: ParameterType
    default: Value
    pattern: str | None = None

    def read(self, given: object) -> Value:
        """Convert a value to the parameter's type, and validate the value.

        Args:
            given: A text that was typed, or a value of a program.

        Raises:
            ConfigurationError: If the value is invalid.
        """
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            raise self._value_error(given, f"it takes {_type_description(self.type)}")
        try:
            text = str(given)
        except ValueError:  # Python writes no int with thousands of digits
            raise ConfigurationError(f"{self.name} has too many digits") from None
        try:
            if self.type == "integer":
                return self._to_integer(given)
            if self.type == "number":
                return self._to_finite(given)
        except (ValueError, OverflowError):
            raise self._value_error(given, f"it takes {_type_description(self.type)}") from None
        if self.type == "date" and not is_date(text):
            raise self._value_error(
                given, "it takes a date of the calendar, as 2026, 2026-10 or 2026-10-31"
            )
        # The default value, which comes from the saved task, need not match the pattern.
        if self.pattern is None or text == self.default:
            return text
        if not re.fullmatch(self.pattern, text):
            raise self._value_error(given, f"it has to match {self.pattern}")
        return text

    def _to_integer(self, given: str | float) -> int:
        """Convert a text or a number to an integer; raise for a fraction, which int() drops."""
        number = int(given)
        has_fraction = not isinstance(given, str) and given != number
        if has_fraction:
            raise ValueError
        return number

    def _to_finite(self, given: str | float) -> float:
        number = float(given)
        if not math.isfinite(number):  # infinity and NaN have no literal for the script
            raise ValueError
        return number

    def _value_error(self, given: object, why: str) -> ConfigurationError:
        return ConfigurationError(f"{self.name} = {given!r} does not fit: {why}")


@dataclass(frozen=True, kw_only=True)
class UsedAction:
    """An action in the form that a routine's header records.

    Args:
        effect: The effect of a call.
        parameters: The parameters in order, such as ``limit: int = 50``.
        returns: The type of the result.
        schema: A digest of the arguments' JSON Schema; empty to skip the comparison.
        empty: Whether an empty result is normal. If not, all changes after an empty result need
            approval.
    """

    __pydantic_config__ = _CONFIG

    effect: Effect
    parameters: tuple[str, ...] = ()
    returns: str = "Any"
    schema: str = ""
    empty: bool = True


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one run, in addition to the task's limits; None for no limit.

    Args:
        calls: The maximum number of calls.
        changes: The maximum number of calls that change something.
    """

    __pydantic_config__ = _CONFIG

    calls: Annotated[int, Field(ge=0)] | None = None
    changes: Annotated[int, Field(ge=0)] | None = None


class _HeaderParameter(BaseModel):
    """A parameter in the header of a routine's file."""

    model_config = _CONFIG

    type: ParameterType = "text"
    default: Value
    pattern: str | None = None


class _Header(BaseModel):
    """The header of a routine's file."""

    model_config = _CONFIG

    title: str
    task: str
    saved_from: str | None = None
    on_failure: OnFailure = "fail"
    confirm: tuple[str, ...] = ()
    answer: str = ""
    limits: Limits = Limits()
    parameters: dict[str, _HeaderParameter] = Field(default_factory=dict[str, _HeaderParameter])
    actions: dict[str, UsedAction] = Field(default_factory=dict[str, UsedAction])


@dataclass(frozen=True, kw_only=True)
class Routine:
    """A script of a successful task, with parameters.

    Args:
        name: The name.
        title: The purpose, in one line.
        task: The text of the original task.
        script: The Python source, in which the parameters are variables.
        parameters: The parameters by name. A parameter without a pattern gets one if the script
            inserts its value into a longer text.
        actions: The allowed actions, by ``connection.method``.
        saved_from: The id of the original task.
        on_failure: ``fail`` to end the task with the error, or ``repair`` to let a model repair the
            script.
        confirm: Actions that need approval in each run, whatever the settings say.
        answer: The shape of the answer, as :func:`shape_of` returns it; empty for any answer.
        limits: The limits of one run.
    """

    name: str
    title: str
    task: str
    script: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    actions: Mapping[str, UsedAction] = field(default_factory=dict[str, UsedAction])
    saved_from: str | None = None
    on_failure: OnFailure = "fail"
    confirm: tuple[str, ...] = ()
    answer: str = ""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "parameters", self._with_patterns())

    def _with_patterns(self) -> dict[str, Parameter]:
        """Return the parameters, and add the regexes that text parameters without a regex need.

        A regex is needed if the script inserts the parameter into another text, such as a query,
        whose meaning a value could change.
        """
        texts_without_pattern = {
            name: str(item.default)
            for name, item in self.parameters.items()
            if item.type == "text" and item.pattern is None
        }
        patterns = value_patterns(self.script, texts_without_pattern, self.actions)
        with_pattern = {
            name: replace(self.parameters[name], pattern=pattern)
            for name, pattern in patterns.items()
        }
        return {**self.parameters, **with_pattern}

    def values(self, given: Mapping[str, object]) -> dict[str, Value]:
        """Return the values of all parameters.

        Args:
            given: The values that differ from the original task, by name.

        Raises:
            ConfigurationError: If a parameter is unknown, or a value is invalid.
        """
        for name in given:
            if name not in self.parameters:
                names = ", ".join(self.parameters) or "none"
                raise ConfigurationError(
                    f"the routine {self.name} has no parameter {name!r}"
                    f"{did_you_mean(name, self.parameters)}",
                    hint=f"its parameters: {names}",
                )
        return {
            name: item.read(given[name]) if name in given else item.default
            for name, item in self.parameters.items()
        }

    def code(self, given: Mapping[str, object], script: str | None = None) -> str:
        """Return the Python source to run: assignments of the parameters, then the script.

        Args:
            given: The values that differ from the original task, by name.
            script: A script that replaces the routine's own; None to use the routine's own.
        """
        # The constructor derives the regexes that values() uses from the script. So another script
        # needs another Routine.
        routine = self if script is None else replace(self, script=script)
        head = [f"{name} = {value!r}" for name, value in routine.values(given).items()]
        return "\n".join([*head, routine.script])

    def text(self) -> str:
        """Return the text of the routine's file: the script below a comment with TOML."""
        lines = [f"title = {_toml_text(self.title)}", f"task = {_toml_text(self.task)}"]
        if self.saved_from is not None:
            lines.append(f"saved_from = {_toml_text(self.saved_from)}")
        if self.on_failure != "fail":
            lines.append(f"on_failure = {_toml_text(self.on_failure)}")
        if self.confirm:
            lines.append(f"confirm = [{', '.join(map(_toml_text, self.confirm))}]")
        if self.answer:
            lines.append(f"answer = {_toml_text(self.answer)}")
        if self.limits != Limits():
            lines += ["", "[limits]"]
            limits = asdict(self.limits).items()
            lines += [f"{name} = {limit}" for name, limit in limits if limit is not None]
        for name, parameter in self.parameters.items():
            lines += ["", f"[parameters.{name}]", *_lines_of_parameter(parameter)]
        for name, action in self.actions.items():
            lines += ["", f"[actions.{_toml_text(name)}]", *_lines_of_action(action)]
        head = [f"# {line}".rstrip() for line in lines]
        return "\n".join([_BEGIN, *head, _END, self.script.strip("\n"), ""])

    @classmethod
    def of_text(cls, name: str, text: str, place: str) -> Routine:
        """Parse the text of a routine's file.

        Args:
            name: The name of the routine.
            text: The text of the file.
            place: The path of the file, for error messages.

        Raises:
            ConfigurationError: If the text is not a routine. The message names file and field.
        """
        # Invisible characters could hide code from a reviewer.
        hidden = next(filter(_is_hidden, text), None)
        if hidden is not None:
            character = f"U+{ord(hidden):04X} {unicodedata.name(hidden, '')}".strip()
            raise _file_error(place, f"it has the invisible character {character}")
        table, script = _split_file(text, place)
        header = _header_of(table, place)
        try:
            ast.parse(script)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _file_error(place, f"the script is not Python: {error}") from None
        parameters = {key: _parameter(key, item, place) for key, item in header.parameters.items()}
        fields = {key: getattr(header, key) for key in _Header.model_fields if key != "parameters"}
        return cls(name=name, script=script, parameters=parameters, **fields)


def shape_of(answer: str) -> str:
    """Describe the shape of an answer: ``text``, ``nothing``, ``number`` or its JSON structure."""
    if not answer.strip():
        return "nothing"
    try:
        value: object = json.loads(answer)
    except (ValueError, RecursionError):
        return "text"
    return _shape(value)


def _shape(value: object) -> str:
    """Describe the shape of a JSON value in words. Booleans and null count as text."""
    match value:
        case bool() | None | str():
            return "text"
        case int() | float():
            return "number"
        case dict():
            return f"object of {', '.join(sorted(cast('dict[str, Any]', value)))}"
        case list():
            kinds = {_shape(item) for item in cast("list[object]", value)}
            return f"list of {kinds.pop()}" if len(kinds) == 1 else "list"
        case _:
            return "text"


def check_name(name: str) -> str:
    """Check that a name is valid for a routine, and return the name.

    Raises:
        ConfigurationError: If the name is invalid.
    """
    if not is_name(name):
        raise ConfigurationError(
            f"{name[:80]!r} is not a name of a routine",
            hint="small letters, digits and _, as monthly_report",
        )
    return name


def is_date(text: str) -> bool:
    """Return True if a text is a year, month or day of the calendar, such as ``2026-10``."""
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    # A missing month or day counts as 1.
    year, month, day = (int(number or 1) for number in match.groups())
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def is_name(name: str) -> bool:
    """Return True if a name is valid for a routine."""
    return _NAME.fullmatch(name) is not None and not keyword.iskeyword(name)


def _split_file(text: str, place: str) -> tuple[dict[str, Any], str]:
    """Split the text of a routine's file into the header's fields and the script."""
    lines = text.replace("\r\n", "\n").split("\n")
    stripped_lines = [line.rstrip() for line in lines]
    if stripped_lines[0] != _BEGIN:
        raise _file_error(place, f"it does not begin with {_BEGIN!r}")
    try:
        end = stripped_lines.index(_END, 1)
    except ValueError:
        raise _file_error(place, f"its header has no end: {_END!r}") from None
    toml_lines: list[str] = []
    header_lines = lines[1:end]
    for line in header_lines:
        if not line.startswith("#"):
            raise _file_error(place, "a line of its header does not begin with '#'")
        toml_lines.append(line.removeprefix("#").removeprefix(" "))
    try:
        table = tomllib.loads("\n".join(toml_lines))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _file_error(place, f"its header is not TOML: {error}") from None
    script_lines = lines[end + 1 :]
    return table, "\n".join(script_lines).strip("\n")


def _header_of(table: Mapping[str, Any], place: str) -> _Header:
    """Validate the fields of a header. Unknown fields are refused."""
    try:
        # As JSON, because strict validation accepts a list for a tuple in JSON only.
        return _Header.model_validate_json(json.dumps(table, default=str))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        for problem in problems:  # a misspelt key may be the cause of another problem
            if problem["type"] in _UNKNOWN_KEY_ERRORS:
                raise _file_error(place, f"unknown key {_dotted(problem['loc'])!r}") from None
        first = problems[0]
        raise _file_error(place, f"{_dotted(first['loc'])}: {first['msg']}") from None


def _dotted(keys: Iterable[str | int]) -> str:
    return ".".join(map(str, keys))


def _parameter(name: str, fields: _HeaderParameter, place: str) -> Parameter:
    """Return a parameter of a file's header, with its name, regex and default value checked."""
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise _file_error(place, f"parameters.{name} is not a valid name of a variable")
    parameter = Parameter(name=name, **fields.model_dump())
    try:
        re.compile(parameter.pattern or "")  # raises if the regex is invalid
        return replace(parameter, default=parameter.read(fields.default))
    except (ConfigurationError, re.error) as error:
        raise _file_error(place, f"parameters.{name}: {error}") from None


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def _escape_if_hidden(character: str) -> str:
    return f"\\U{ord(character):08X}" if _is_hidden(character) else character


def _lines_of_parameter(parameter: Parameter) -> Iterator[str]:
    yield f"type = {_toml_text(parameter.type)}"
    yield f"default = {_toml_text(parameter.default)}"
    if parameter.pattern is not None:
        yield f"pattern = {_toml_text(parameter.pattern)}"


def _lines_of_action(action: UsedAction) -> Iterator[str]:
    yield f"effect = {_toml_text(action.effect)}"
    yield f"parameters = [{', '.join(map(_toml_text, action.parameters))}]"
    yield f"returns = {_toml_text(action.returns)}"
    if action.schema:
        yield f"schema = {_toml_text(action.schema)}"
    if not action.empty:
        yield "empty = false"


def _toml_text(value: Value) -> str:
    """Format a value as TOML."""
    if isinstance(value, str):
        # JSON leaves the character DEL as it is, and TOML does not accept it.
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return "".join(map(_escape_if_hidden, text))
    return repr(value)  # TOML writes numbers like Python


def _type_description(kind: ParameterType) -> str:
    return {"integer": "a whole number", "number": "a number", "date": "a date"}.get(kind, "a text")


def _file_error(place: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{place}: {why}", hint="delf routines check looks at all of them")
