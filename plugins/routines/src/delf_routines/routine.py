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
    # ///
    print(shop.query(f"select … where month = '{month}'"))
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from delf.errors import ConfigurationError, did_you_mean
from delf.types import Effect

FOLDER: Final = "routines"
"""The folder of a project's routines."""
ParameterType = Literal["text", "number", "integer", "date"]
Value = str | int | float

_BEGIN: Final = "# /// routine"
_END: Final = "# ///"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DATE: Final = re.compile(r"\d{4}(?:-\d{2}(?:-\d{2})?)?")
_KEYS: Final = ("title", "task", "saved_from", "parameters", "actions")


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A variable of a routine that each run gives a value.

    Args:
        name: A variable of the script.
        type: What its values are. A ``date`` is a year, month or day: ``2026-10``.
        default: The value of the task that the routine came from.
        pattern: What a text has to match as a whole, where it becomes a part of another one.
    """

    name: str
    type: ParameterType
    default: Value
    pattern: str | None = None

    def read(self, given: object) -> Value:
        """A value as the script gets it.

        Args:
            given: Text as it was typed, or a value of a program.

        Raises:
            ConfigurationError: When it does not fit.
        """
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            raise self._unfit(given, f"it takes {_words(self.type)}")
        try:
            if self.type == "integer":
                return int(given) if isinstance(given, str) else self._whole(given)
            if self.type == "number":
                return float(given)
        except ValueError:
            raise self._unfit(given, f"it takes {_words(self.type)}") from None
        text = str(given)
        if self.type == "date" and not _DATE.fullmatch(text):
            raise self._unfit(given, "it takes a date, as 2026, 2026-10 or 2026-10-31")
        if self.pattern is not None and not re.fullmatch(self.pattern, text):
            raise self._unfit(given, f"it has to match {self.pattern}")
        return text

    def _whole(self, given: float) -> int:
        if given != int(given):
            raise ValueError
        return int(given)

    def _unfit(self, given: object, why: str) -> ConfigurationError:
        return ConfigurationError(f"{self.name} = {given!r} does not fit: {why}")


@dataclass(frozen=True, kw_only=True)
class UsedAction:
    """An action as it was when the routine was saved.

    Args:
        effect: What it does to the world.
        parameters: Its parameters in order, as ``limit: int = 50``.
        returns: The type of its result.
    """

    effect: Effect
    parameters: tuple[str, ...]
    returns: str


@dataclass(frozen=True, kw_only=True)
class Routine:
    """A task that worked, as a script.

    Args:
        name: What it is called by.
        title: What it does, in a line.
        task: The words of the task that it came from.
        script: The Python of it; its parameters are variables.
        parameters: What it is run with.
        actions: Those that it calls, by ``connection.method``.
        saved_from: The task that it came from.
    """

    name: str
    title: str
    task: str
    script: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    actions: Mapping[str, UsedAction] = field(default_factory=dict[str, UsedAction])
    saved_from: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name)

    def values(self, given: Mapping[str, object]) -> dict[str, Value]:
        """The values of all parameters.

        Args:
            given: Those that are not as in the task that it came from.

        Raises:
            ConfigurationError: For one that there is not, or that does not fit.
        """
        for name in given:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "none"
                raise ConfigurationError(
                    f"the routine {self.name} has no parameter {name!r}"
                    f"{did_you_mean(name, self.parameters)}",
                    hint=f"its parameters: {known}",
                )
        return {
            name: item.read(given[name]) if name in given else item.default
            for name, item in self.parameters.items()
        }

    def code(self, given: Mapping[str, object]) -> str:
        """The script that is run: the parameters as variables, then the script.

        Args:
            given: As for :meth:`values`.
        """
        head = [f"{name} = {value!r}" for name, value in self.values(given).items()]
        return "\n".join([*head, self.script])

    def text(self) -> str:
        """The routine as the text of its file."""
        lines = [f"title = {_toml(self.title)}", f"task = {_toml(self.task)}"]
        if self.saved_from is not None:
            lines.append(f"saved_from = {_toml(self.saved_from)}")
        for name, item in self.parameters.items():
            lines += ["", f"[parameters.{name}]", f"type = {_toml(item.type)}"]
            lines.append(f"default = {_toml(item.default)}")
            if item.pattern is not None:
                lines.append(f"pattern = {_toml(item.pattern)}")
        for name, item in self.actions.items():
            lines += ["", f"[actions.{_toml(name)}]", f"effect = {_toml(item.effect)}"]
            lines.append(f"parameters = [{', '.join(map(_toml, item.parameters))}]")
            lines.append(f"returns = {_toml(item.returns)}")
        head = [f"# {line}".rstrip() for line in lines]
        return "\n".join([_BEGIN, *head, _END, self.script.strip("\n"), ""])

    @classmethod
    def of_text(cls, name: str, text: str, place: str) -> Routine:
        """A routine from the text of its file.

        Args:
            name: What it is called by.
            text: The file's text.
            place: What messages call the file.

        Raises:
            ConfigurationError: When it is no routine: file and key.
        """
        table, script = _split(text, place)
        for key in table:
            if key not in _KEYS:
                raise _wrong(place, f"unknown key {key!r}{did_you_mean(key, _KEYS)}")
        try:
            ast.parse(script)
        except SyntaxError as error:
            raise _wrong(place, f"the script is no Python: {error.msg}") from None
        saved_from = table.get("saved_from")
        return cls(
            name=name,
            title=_text_of(table, "title", place),
            task=_text_of(table, "task", place),
            script=script,
            parameters=dict(_parameters(table.get("parameters", {}), place)),
            actions=dict(_actions(table.get("actions", {}), place)),
            saved_from=None if saved_from is None else str(saved_from),
        )


def check_name(name: str) -> str:
    """A name that a routine can have.

    Raises:
        ConfigurationError: When it cannot.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigurationError(
            f"{name[:80]!r} is no name of a routine",
            hint="small letters, digits and _, as monthly_report",
        )
    return name


def _split(text: str, place: str) -> tuple[dict[str, Any], str]:
    """The header's table, and the script."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != _BEGIN:
        raise _wrong(place, f"it does not begin with {_BEGIN!r}")
    try:
        end = next(i for i, line in enumerate(lines) if i and line.rstrip() == _END)
    except StopIteration:
        raise _wrong(place, f"its header has no end: {_END!r}") from None
    head = lines[1:end]
    if not all(line.startswith("#") for line in head):
        raise _wrong(place, "a line of its header does not begin with '#'")
    try:
        table = tomllib.loads("\n".join(line[1:].removeprefix(" ") for line in head))
    except tomllib.TOMLDecodeError as error:
        raise _wrong(place, f"its header is no TOML: {error}") from None
    return table, "\n".join(lines[end + 1 :]).strip("\n")


def _parameters(table: Any, place: str) -> Iterator[tuple[str, Parameter]]:
    for name, item in _tables(table, "parameters", place):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise _wrong(place, f"parameters.{name} is no variable")
        kind = item.get("type", "text")
        if kind not in get_args(ParameterType):
            raise _wrong(place, f"parameters.{name}.type is {kind!r}")
        pattern = item.get("pattern")
        made = Parameter(name=name, type=kind, default="", pattern=pattern)
        if "default" not in item:
            raise _wrong(place, f"parameters.{name} has no default")
        try:
            default = made.read(item["default"])
        except (ConfigurationError, re.error) as error:
            raise _wrong(place, f"parameters.{name}: {error}") from None
        yield name, Parameter(name=name, type=kind, default=default, pattern=pattern)


def _actions(table: Any, place: str) -> Iterator[tuple[str, UsedAction]]:
    for name, item in _tables(table, "actions", place):
        effect = item.get("effect")
        if not isinstance(effect, str) or effect not in get_args(Effect):
            raise _wrong(place, f"actions.{name}.effect is {effect!r}")
        parameters = item.get("parameters", [])
        if not isinstance(parameters, list):
            raise _wrong(place, f"actions.{name}.parameters is no list")
        texts = tuple(map(str, cast("list[Any]", parameters)))
        returns = str(item.get("returns", "Any"))
        yield name, UsedAction(effect=cast("Effect", effect), parameters=texts, returns=returns)


def _tables(table: Any, key: str, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(table, dict):
        raise _wrong(place, f"{key} is no table")
    for name, item in cast("dict[str, Any]", table).items():
        if not isinstance(item, dict):
            raise _wrong(place, f"{key}.{name} is no table")
        yield name, cast("dict[str, Any]", item)


def _text_of(table: Mapping[str, Any], key: str, place: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise _wrong(place, f"{key} is missing, or no text")
    return value


def _toml(value: Value) -> str:
    """A value as TOML writes it: texts as in JSON, but for one character."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _words(kind: ParameterType) -> str:
    return {"integer": "a whole number", "number": "a number", "date": "a date"}.get(kind, "a text")


def _wrong(place: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{place}: {why}", hint="delf routines check looks at all of them")
