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
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast, get_args

from delf.errors import ConfigurationError, did_you_mean
from delf.types import Effect

FOLDER: Final = "routines"
"""The folder of a project's routines."""
STRATEGY: Final = "routine"
"""The strategy that runs a routine."""
NO_MODEL: Final = "none:no model"
"""The model of a routine's agent in a project without one."""
ParameterType = Literal["text", "number", "integer", "date"]
OnFailure = Literal["fail", "repair"]
Value = str | int | float

_HIDDEN: Final = ("Cf", "Co", "Cs")
"""Categories of characters that nobody sees, or that change the order of what is seen."""
_JOINERS: Final = "\u200c\u200d"
"""Those of them that some scripts and pictures need."""
_BEGIN: Final = "# /// routine"
_END: Final = "# ///"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_DATE: Final = re.compile(r"\d{4}(?:-\d{2}(?:-\d{2})?)?")
_KEYS: Final = (
    *("title", "task", "saved_from", "on_failure", "confirm", "answer"),
    *("limits", "parameters", "actions"),
)
_ACTION_KEYS: Final = ("effect", "parameters", "returns", "schema", "empty")
_PARAMETER_KEYS: Final = ("type", "default", "pattern")
_LIMITS: Final = ("calls", "changes")


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
        schema: A digest of the JSON Schema of its arguments; empty where it is not compared.
        empty: Whether it may give nothing. Where it may not, and does, a person is asked before
            the run changes anything after that.
    """

    effect: Effect
    parameters: tuple[str, ...]
    returns: str
    schema: str = ""
    empty: bool = True


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The most that one run does; None where only the limits of every task hold.

    Args:
        calls: Calls.
        changes: Those of them that change something.
    """

    calls: int | None = None
    changes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Routine:
    """A task that worked, as a script.

    Args:
        name: What it is called by.
        title: What it does, in a line.
        task: The words of the task that it came from.
        script: The Python of it; its parameters are variables.
        parameters: What it is run with.
        actions: Those that it may call, by ``connection.method``.
        saved_from: The task that it came from.
        on_failure: What is done when it fails: nothing, or a model repairs it.
        confirm: Actions that ask a person in each run, whatever the settings say.
        answer: The shape of its answer, as :func:`shape_of` tells it; empty where any will do.
        limits: The most that one run does.
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
        return self.with_values(self.script, given)

    def with_values(self, script: str, given: Mapping[str, object]) -> str:
        """A script of it below its parameters as variables.

        Args:
            script: The script.
            given: As for :meth:`values`.
        """
        head = [f"{name} = {value!r}" for name, value in self.values(given).items()]
        return "\n".join([*head, script])

    def text(self) -> str:
        """The routine as the text of its file."""
        lines = [f"title = {_toml(self.title)}", f"task = {_toml(self.task)}"]
        if self.saved_from is not None:
            lines.append(f"saved_from = {_toml(self.saved_from)}")
        if self.on_failure != "fail":
            lines.append(f"on_failure = {_toml(self.on_failure)}")
        if self.confirm:
            lines.append(f"confirm = [{', '.join(map(_toml, self.confirm))}]")
        if self.answer:
            lines.append(f"answer = {_toml(self.answer)}")
        if self.limits != Limits():
            lines += ["", "[limits]"]
            found = ((name, getattr(self.limits, name)) for name in _LIMITS)
            lines += [f"{name} = {most}" for name, most in found if most is not None]
        for name, item in self.parameters.items():
            lines += ["", f"[parameters.{name}]", f"type = {_toml(item.type)}"]
            lines.append(f"default = {_toml(item.default)}")
            if item.pattern is not None:
                lines.append(f"pattern = {_toml(item.pattern)}")
        for name, item in self.actions.items():
            lines += ["", f"[actions.{_toml(name)}]", f"effect = {_toml(item.effect)}"]
            lines.append(f"parameters = [{', '.join(map(_toml, item.parameters))}]")
            lines.append(f"returns = {_toml(item.returns)}")
            if item.schema:
                lines.append(f"schema = {_toml(item.schema)}")
            if not item.empty:
                lines.append("empty = false")
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
            ConfigurationError: When it is not a routine: file and key.
        """
        hidden = next(filter(_is_hidden, text), None)
        if hidden is not None:
            what = f"U+{ord(hidden):04X} {unicodedata.name(hidden, '')}".strip()
            raise _wrong(place, f"it holds {what}, which nobody sees")
        table, script = _split(text, place)
        _check_keys(table, _KEYS, place)
        try:
            ast.parse(script)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise _wrong(place, f"the script is not Python: {error}") from None
        saved_from = table.get("saved_from")
        on_failure = table.get("on_failure", "fail")
        if on_failure not in get_args(OnFailure):
            allowed = " or ".join(get_args(OnFailure))
            raise _wrong(place, f"on_failure is {on_failure!r}, and can be {allowed}")
        return cls(
            name=name,
            title=_text_of(table, "title", place),
            task=_text_of(table, "task", place),
            script=script,
            parameters=dict(_parameters(table.get("parameters", {}), place)),
            actions=dict(_actions(table.get("actions", {}), place)),
            saved_from=None if saved_from is None else str(saved_from),
            on_failure=on_failure,
            confirm=_names_of(table, "confirm", place),
            answer=_text_of(table, "answer", place) if "answer" in table else "",
            limits=_limits(table.get("limits", {}), place),
        )


def shape_of(answer: str) -> str:
    """Tell the shape of an answer: ``text``, ``nothing``, ``number`` or that of its JSON.

    Args:
        answer: The text of the answer.
    """
    if not answer.strip():
        return "nothing"
    try:
        value: object = json.loads(answer)
    except (ValueError, RecursionError):
        return "text"
    return _shape(value)


def _shape(value: object) -> str:
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
    """A name that a routine can have.

    Raises:
        ConfigurationError: When it cannot.
    """
    if not is_name(name):
        raise ConfigurationError(
            f"{name[:80]!r} is not a name of a routine",
            hint="small letters, digits and _, as monthly_report",
        )
    return name


def is_name(name: str) -> bool:
    """Tell whether a routine can be called so.

    Args:
        name: The name.
    """
    return _NAME.fullmatch(name) is not None and not keyword.iskeyword(name)


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
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _wrong(place, f"its header is not TOML: {error}") from None
    return table, "\n".join(lines[end + 1 :]).strip("\n")


def _check_keys(table: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key in table:
        if key not in known:
            raise _wrong(place, f"unknown key {key!r}{did_you_mean(key, known)}")


def _names_of(table: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(n, str) for n in cast("list[Any]", found)):
        raise _wrong(place, f"{key} is not a list of names")
    return tuple(cast("list[str]", found))


def _limits(table: Any, place: str) -> Limits:
    if not isinstance(table, dict):
        raise _wrong(place, "limits is not a table")
    found = cast("dict[str, Any]", table)
    _check_keys(found, _LIMITS, place)
    for name, most in found.items():
        if isinstance(most, bool) or not isinstance(most, int) or most < 0:
            raise _wrong(place, f"limits.{name} is {most!r}, and has to be a whole number")
    return Limits(**found)


def _parameters(table: Any, place: str) -> Iterator[tuple[str, Parameter]]:
    for name, item in _tables(table, "parameters", place):
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise _wrong(place, f"parameters.{name} is not a variable of a routine")
        _check_keys(item, _PARAMETER_KEYS, place)
        kind = item.get("type", "text")
        if kind not in get_args(ParameterType):
            raise _wrong(place, f"parameters.{name}.type is {kind!r}")
        pattern = item.get("pattern")
        if pattern is not None and not isinstance(pattern, str):
            raise _wrong(place, f"parameters.{name}.pattern is not text")
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
        _check_keys(item, _ACTION_KEYS, place)
        effect = item.get("effect")
        if not isinstance(effect, str) or effect not in get_args(Effect):
            raise _wrong(place, f"actions.{name}.effect is {effect!r}")
        parameters = item.get("parameters", [])
        if not isinstance(parameters, list):
            raise _wrong(place, f"actions.{name}.parameters is not a list")
        texts = tuple(map(str, cast("list[Any]", parameters)))
        empty = item.get("empty", True)
        if not isinstance(empty, bool):
            raise _wrong(place, f"actions.{name}.empty is {empty!r}")
        yield (
            name,
            UsedAction(
                effect=cast("Effect", effect),
                parameters=texts,
                returns=str(item.get("returns", "Any")),
                schema=str(item.get("schema", "")),
                empty=empty,
            ),
        )


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def _tables(table: Any, key: str, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(table, dict):
        raise _wrong(place, f"{key} is not a table")
    for name, item in cast("dict[str, Any]", table).items():
        if not isinstance(item, dict):
            raise _wrong(place, f"{key}.{name} is not a table")
        yield name, cast("dict[str, Any]", item)


def _text_of(table: Mapping[str, Any], key: str, place: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise _wrong(place, f"{key} is missing, or no text")
    return value


def _toml(value: Value) -> str:
    """A value as TOML writes it: texts as in JSON, but for one character."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        return "".join(f"\\U{ord(c):08X}" if _is_hidden(c) else c for c in text)
    return repr(value)


def _words(kind: ParameterType) -> str:
    return {"integer": "a whole number", "number": "a number", "date": "a date"}.get(kind, "a text")


def _wrong(place: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"{place}: {why}", hint="delf routines check looks at all of them")
