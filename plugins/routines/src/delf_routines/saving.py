"""Making a routine from a task: its script, with the user's words as parameters."""

from __future__ import annotations

import ast
import io
import keyword
import math
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from delf.errors import ConfigurationError
from delf.events import (
    CallFinished,
    CallStarted,
    Event,
    RerunRequested,
    ScriptFinished,
    ScriptGenerated,
    TaskFinished,
    start_event,
)
from delf.protocols.strategy import ToolDescription
from delf_routines.cases import answer_of
from delf_routines.drift import named_actions
from delf_routines.flow import VALUE_WITHOUT_QUOTES
from delf_routines.guard import is_empty
from delf_routines.routine import Parameter, ParameterType, Routine, Value, is_date, shape_of

_DATE: Final = re.compile(r"\d{4}-\d{2}(?:-\d{2})?|(?:19|20)\d{2}")
_DASHED_DATE: Final = re.compile(r"\d{4}-\d{2}(?:-\d{2})?")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
# Regex of a number that is not part of a word, a date, a percentage or a quoted text.
_STANDALONE_NUMBER: Final = re.compile(r"(?<![\w.'-])\d+(?:\.\d+)?(?![\w'%-]|\.\d)")
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_SPELLED_OUT_DATE: Final = re.compile(
    r"(?:\b(?P<before>\d{1,2})(?:st|nd|rd|th)?\s+(?:of\s+)?)?"
    r"\b(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
    r"(?:\s+(?P<after>\d{1,2})(?:st|nd|rd|th)?\b)?,?\s+(?P<year>(?:19|20)\d{2})\b",
    re.IGNORECASE,
)
_QUOTED_TEXT: Final = re.compile(r"'([^'\n]{2,60})'")
_WORD: Final = re.compile(r"\w+")
_BRACES: Final = re.compile(r"(\{\{|\}\}|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})")
_F_STRING: Final = re.compile(r"(?:f|fr|rf)['\"]", re.IGNORECASE)
_MIN_CHARACTERS: Final = 2
_LONGEST_TITLE: Final = 80


class Scripts(NamedTuple):
    """The scripts of a successful task.

    Args:
        code: The last script.
        earlier: Pairs of an earlier script and its status or error.
        begin_index: The index of the event that begins the last script.
        last_suffices: Whether the last script alone does the task: no earlier script changed
            anything, and the last one contains no values from earlier results.
    """

    code: str
    earlier: Sequence[tuple[str, str]]
    begin_index: int
    last_suffices: bool


class _EndedScript(NamedTuple):
    """A script that ended.

    Args:
        code: The script.
        outcome: ``done``, or the reason why another script followed.
        begin_index: The index of the event that begins the script.
    """

    code: str
    outcome: str
    begin_index: int


def scripts_of(events: Sequence[Event]) -> Scripts:
    """Return the scripts of a successful task.

    Raises:
        ConfigurationError: If the task did not succeed, or had no script.
    """
    task_end = next((event for event in reversed(events) if isinstance(event, TaskFinished)), None)
    has_succeeded = task_end is not None and task_end.status
    if not has_succeeded:
        raise ConfigurationError(
            "the task is not done", hint="only a task that worked can become a routine"
        )
    ended_scripts = _ended_scripts(events)
    if not ended_scripts or ended_scripts[-1].outcome != "done":
        raise ConfigurationError(
            "the task was done without a script", hint="a routine is a script that worked"
        )
    *earlier_scripts, last = ended_scripts
    before = events[: last.begin_index]
    earlier_calls = [event for event in before if isinstance(event, CallStarted)]
    has_earlier_change = any(call.effect != "read" for call in earlier_calls)
    needs_earlier_scripts = has_earlier_change or _has_values_of_results(last.code, before)
    return Scripts(
        last.code,
        earlier=[(script.code, script.outcome) for script in earlier_scripts],
        begin_index=last.begin_index,
        last_suffices=not needs_earlier_scripts,
    )


def _ended_scripts(events: Sequence[Event]) -> list[_EndedScript]:
    """Return each script that was run, with its outcome, even if the script failed.

    A script that a person refused was not run.
    """
    ended_scripts: list[_EndedScript] = []
    latest_code = ""
    latest_index = 0
    for index, event in enumerate(events):
        match event:
            case ScriptGenerated():
                latest_code = event.code
                latest_index = index
            case ScriptFinished():
                outcome = event.error or event.status
                ended_scripts.append(_EndedScript(latest_code, outcome, latest_index))
            case RerunRequested() if ended_scripts:
                reason = f"it asked for another script, as it learned: {event.context}"
                ended_scripts[-1] = ended_scripts[-1]._replace(outcome=reason)
            case _:
                pass
    return ended_scripts


def _has_values_of_results(code: str, before: Sequence[Event]) -> bool:
    """Return True if a script contains values from tool results as literals.

    A value that the task or an earlier script contains, too, does not count.
    """
    start = start_event(before)
    task_and_scripts = ["" if start is None else start.task]
    results: list[str] = []
    for event in before:
        if isinstance(event, ScriptGenerated):
            task_and_scripts.append(event.code)
        elif isinstance(event, RerunRequested):
            results.append(event.context)
        elif isinstance(event, CallFinished) and event.status == "ok":
            results.append(str(event.result))
    for literal in _long_literals(code):
        is_from_task_or_script = any(literal in text for text in task_and_scripts)
        if not is_from_task_or_script and any(literal in text for text in results):
            return True
    return False


def _long_literals(code: str) -> Iterator[str]:
    """Yield the numbers and texts in a script that are too long to be equal by chance."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Constant) or isinstance(node.value, bool):
            continue
        try:
            literal = str(node.value)
        except ValueError:  # Python writes no int with thousands of digits
            continue
        if isinstance(node.value, (str, int, float)) and len(literal) > _MIN_CHARACTERS:
            yield literal


def actions_called(events: Iterable[Event]) -> set[str]:
    """Return the full names of the actions that a task called."""
    return {event.action for event in events if isinstance(event, CallStarted)}


def reads_with_data(events: Iterable[Event]) -> set[str]:
    """Return the full names of the read actions whose calls all returned data."""
    events = list(events)
    starts = [event for event in events if isinstance(event, CallStarted)]
    call_ids = {start.call_id for start in starts}
    # A refused call has an end, but no start.
    all_ends = [event for event in events if isinstance(event, CallFinished)]
    ends = [end for end in all_ends if end.call_id in call_ids]
    called = {start.action for start in starts}
    changing = {start.action for start in starts if start.effect != "read"}
    without_data = {end.action for end in ends if end.status != "ok" or is_empty(end.result)}
    return called - changing - without_data


class Proposal(NamedTuple):
    """A proposed routine, and the names of parameters that a person refused.

    Args:
        routine: The routine.
        fixed_names: The names in the argument ``fixed`` of :func:`propose` for which a parameter
            was found. The values of these parameters stay literals in the script.
    """

    routine: Routine
    fixed_names: frozenset[str]


def propose(
    name: str,
    task: str,
    task_id: str,
    events: Sequence[Event],
    tools: Iterable[ToolDescription],
    *,
    script: str,
    fixed: Iterable[str] = (),
) -> Proposal:
    """Create a routine from a task. Literals that occur in the task's text become parameters.

    Args:
        name: The name of the routine.
        task: The text of the task.
        task_id: The id of the task.
        events: The events of the task.
        tools: The known tools.
        script: The routine's script.
        fixed: The names of proposed parameters that a person wants to keep as literals.

    Raises:
        ConfigurationError: If the task cannot become a routine.
    """
    tools = list(tools)
    literal_script = "\n".join(re.split(r"\r\n?|\n", script))  # the line ends that Python reads
    tree = ast.parse(literal_script)
    used_names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    used_names |= {tool.name.partition(".")[0] for tool in tools}
    signatures = {tool.name: [item.name for item in tool.parameters] for tool in tools}
    # The first pass collects names for the parameters, and the second pass uses them: a literal may
    # occur before the place that suggests a name, such as a keyword argument. The names in
    # ``fixed`` are names that the second pass gives, so only the second pass gets them.
    first_pass = _LiteralFinder(task, used_names, frozenset(), signatures)
    first_pass.visit(tree)
    finder = _LiteralFinder(
        task, used_names, frozenset(fixed), signatures, first_pass.suggested_names
    )
    finder.visit(tree)
    for replacement in _find_in_f_strings(literal_script, tree, finder.parameters.values()):
        if not any(map(replacement.overlaps, finder.replacements)):
            finder.replacements.append(replacement)
    script_with_parameters = _apply_replacements(literal_script, finder.replacements)
    parameters = {item.name: item for item in finder.parameters.values()}
    # A later run that gets nothing from one of these actions is suspicious.
    actions_with_data = reads_with_data(events)
    shape_of_answer = shape_of(answer_of(events))
    routine = Routine(
        name=name,
        title=_title(task),
        task=task,
        script=script_with_parameters,
        parameters=parameters,
        actions=named_actions(
            script_with_parameters,
            tools,
            called=actions_called(events),
            never_empty=actions_with_data,
        ),
        saved_from=task_id,
        answer=shape_of_answer,
    )
    return Proposal(routine, finder.fixed_names)


@dataclass(frozen=True, kw_only=True)
class _Replacement:
    """A replacement for a piece of source code.

    Lines count from 1, and columns are in UTF-8 bytes.
    """

    line: int
    begin: int
    end_line: int
    end: int
    text: str

    def overlaps(self, other: _Replacement) -> bool:
        """Return True if both replace some of the same characters."""
        begins_before_end = (self.line, self.begin) < (other.end_line, other.end)
        ends_after_begin = (self.end_line, self.end) > (other.line, other.begin)
        return begins_before_end and ends_after_begin


_Key = tuple[type, Value]
"""The key of a literal's parameter: ``5`` and ``5.0``, which are equal, have two parameters."""


def _key(value: Value) -> _Key:
    return type(value), value


class _LiteralFinder(ast.NodeVisitor):
    """Finds the literals of a script that occur in a task's text, and can become parameters.

    Args:
        task: The text of the task.
        unavailable_names: The names that a parameter must not get, because the script uses them.
        refused_names: The names of parameters that a person refuses. A literal whose parameter
            would get such a name remains a literal.
        signatures: The names of the parameters of each tool.
        names_from_first_pass: The ``suggested_names`` of the finder that visited the script before.
    """

    def __init__(
        self,
        task: str,
        unavailable_names: Iterable[str],
        refused_names: frozenset[str],
        signatures: Mapping[str, Sequence[str]],
        names_from_first_pass: Mapping[_Key, str] | None = None,
    ) -> None:
        self._signatures = signatures
        # Two finders visit a script. The second one gets the names that the first one suggests.
        self._names_from_first_pass: Mapping[_Key, str] = names_from_first_pass or {}
        self.suggested_names: dict[_Key, str] = {}
        """For ``city = "Rome"``, the name ``city`` of a parameter for the literal ``"Rome"``."""
        self._task = task
        self._task_words = f" {' '.join(_WORD.findall(task)).casefold()} "
        self._spelled_out_dates = spelled_out_dates(task)
        # The numbers of the task: without the parts of dates, and with 1,000 as one number.
        text_without_dates = _DASHED_DATE.sub(" ", task.replace(",", ""))
        # Without numbers that are too large for a float.
        self._numbers = set(map(float, _NUMBER.findall(text_without_dates))) - {math.inf}
        self._unavailable_names = {*unavailable_names, *keyword.kwlist}
        # A literal whose parameter would get one of these names stays a literal.
        self._refused_names = refused_names
        # These literals, each with the name that its parameter would have got.
        self._fixed_literals: dict[_Key, str] = {}
        # For each node that is being visited, the innermost last: a name for its literals, or None.
        self._name_hints: list[str | None] = [None]
        self._f_string_depth = 0  # the number of f-strings around the node being visited
        self.parameters: dict[_Key, Parameter] = {}
        self.replacements: list[_Replacement] = []

    @property
    def fixed_names(self) -> frozenset[str]:
        """The refused names that would be names of parameters."""
        return frozenset(self._fixed_literals.values())

    def visit_Call(self, node: ast.Call) -> None:
        """Visit a call, so that a parameter that replaces a literal argument gets a fitting name.

        The name is the argument's keyword or, for a positional argument, the name in the signature
        of the action.
        """
        self.visit(node.func)
        names = self._signatures.get(ast.unparse(node.func), ())
        for index, item in enumerate(node.args):
            name = names[index] if index < len(names) else None
            self._visit_with_name(name, item)
        for item in node.keywords:
            self._visit_with_name(item.arg, item.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Name a literal after the variable it is assigned to."""
        target = node.targets[0]
        name = target.id if isinstance(target, ast.Name) else None
        self._visit_with_name(name, node.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        """Name the parameter for ``"Rome"`` in ``{"city": "Rome"}`` after the key ``city``.

        The keys are not visited, so they stay literals.
        """
        for key, value in zip(node.keys, node.values, strict=True):
            match key:
                case ast.Constant(value=str(name)):
                    self._visit_with_name(name, value)
                case _:
                    self._visit_with_name(None, value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Visit ``rows`` and the bound 5 of ``rows[:5]``, but not the key of ``row["to"]``.

        A key belongs to the structure of the data, so it stays a literal.
        """
        self.visit(node.value)
        if isinstance(node.slice, ast.Slice):
            no_name = None  # in ``best = rows[:5]``, the 5 is not called ``best``
            self._visit_with_name(no_name, node.slice)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Name a literal after the key that it is compared with."""
        match node.left:
            case ast.Subscript(slice=ast.Constant(value=key)):
                hint = str(key)
            case ast.Attribute(attr=name) | ast.Name(id=name):
                hint = name
            case _:
                hint = None
        self.visit(node.left)
        for item in node.comparators:
            self._visit_with_name(hint, item)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Visit only the values of an f-string, and not its texts."""
        self._f_string_depth += 1
        for item in node.values:
            if isinstance(item, ast.FormattedValue):
                self.visit(item.value)
        self._f_string_depth -= 1

    def visit_Expr(self, node: ast.Expr) -> None:
        """Skip a bare string, which serves as a comment."""
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Replace a literal that occurs in the task by a parameter, and suggest a name for it."""
        value: object = node.value
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return
        if isinstance(value, str):
            self._replace_text(node, value)
        # Numbers from -1 to 1 are so common in scripts that they need not come from the task.
        elif self._is_number_of_task(value) and abs(value) > 1:
            kind: ParameterType = "integer" if isinstance(value, int) else "number"
            self._replace_by_parameter(node, value, kind)

    def _is_number_of_task(self, number: str | float) -> bool:
        try:
            return float(number) in self._numbers
        except OverflowError:  # an int that is too large for a float
            return False

    def _replace_by_parameter(self, node: ast.Constant, value: Value, kind: ParameterType) -> None:
        """Replace a literal by a parameter, and suggest a name for the parameter.

        The suggestion is the keyword argument, key or variable whose value is the literal, if any.
        A second visit of the script uses the name.
        """
        parameter = self._parameter(value, kind)
        if parameter is None:
            return
        if self._name_hints[-1]:
            self.suggested_names.setdefault(_key(value), self._name_hints[-1])
        self._replace(node, parameter.name)

    def _visit_with_name(self, hint: str | None, node: ast.AST) -> None:
        self._name_hints.append(hint)
        self.visit(node)
        self._name_hints.pop()

    def _replace_text(self, node: ast.Constant, value: str) -> None:
        """Replace a string by a parameter, or pieces of the string by several parameters.

        The whole string is replaced if it occurs in the task. Only the date is replaced in a
        phrase such as ``rent due 2026-05-01``, unless the task has the phrase in quotes.
        """
        is_phrase_of_task = self._is_in_task(value)
        if not is_phrase_of_task or self._is_unquoted_phrase_with_date(value):
            self._replace_pieces(node, value)
            return
        kind: ParameterType = "date" if is_date(value) else "text"
        self._replace_by_parameter(node, value, kind)

    def _replace_pieces(self, node: ast.Constant, value: str) -> None:
        """Replace the dates, quoted texts and numbers of a string that occur in the task."""
        # The string becomes an f-string. In the braces of another f-string, that would need other
        # quotes before Python 3.12.
        if self._f_string_depth:
            return
        replacements = {**self._numbers_to_replace(value), **self._texts_to_replace(value)}
        if replacements:
            self._replace(node, _f_string(value, replacements))

    def _numbers_to_replace(self, value: str) -> dict[str, str]:
        """Return the parameter name for each number in a string that the task's text has, too."""
        replacements: dict[str, str] = {}
        for match in _STANDALONE_NUMBER.finditer(value):
            if not self._is_number_of_task(match[0]):
                continue
            has_fraction = "." in match[0]
            number = float(match[0]) if has_fraction else int(match[0])
            kind: ParameterType = "number" if has_fraction else "integer"
            # 0 and 1 are so common in scripts that they need not come from the task.
            if number > 1:
                parameter = self._parameter(number, kind)
                if parameter is not None:
                    replacements[match[0]] = parameter.name
        return replacements

    def _texts_to_replace(self, value: str) -> dict[str, str]:
        """Return a mapping from date or quoted text in a string to parameter name.

        Texts that do not occur in the task are left out.
        """
        replacements: dict[str, str] = {}
        dates = [match[0] for match in _DATE.finditer(value) if is_date(match[0])]
        quoted_texts = [match[1] for match in _QUOTED_TEXT.finditer(value)]
        pieces = dict.fromkeys(filter(self._is_in_task, [*dates, *quoted_texts]))  # distinct
        for piece in pieces:
            kind: ParameterType = "date" if is_date(piece) else "text"
            # The parameter is used between quotes, so its default value must match, too.
            if kind == "text" and not re.fullmatch(VALUE_WITHOUT_QUOTES, piece):
                continue
            parameter = self._parameter(piece, kind)
            if parameter is not None:
                replacements[piece] = parameter.name
        return replacements

    def _is_unquoted_phrase_with_date(self, value: str) -> bool:
        """Return True for a text of several words with a date, unless the task quotes the text.

        Of such a text, only the date becomes a parameter; see :meth:`_replace_text`.
        """
        has_date = _DATE.search(value) is not None and not _DATE.fullmatch(value)
        has_several_words = re.search(r"\s", value) is not None
        # A quotation mark before the text is enough.
        is_quoted = re.search(rf"['\"“]{re.escape(value)}", self._task) is not None
        return has_date and has_several_words and not is_quoted

    def _is_in_task(self, text: str) -> bool:
        """Return True if the task's text contains a value.

        The value counts as contained if its words occur in the task as whole words, or if the value
        is a date that the task spells out.
        """
        if text in self._spelled_out_dates:
            return True
        words = " ".join(_WORD.findall(text)).casefold()
        return len(words) >= _MIN_CHARACTERS and f" {words} " in self._task_words

    def _parameter(self, value: Value, kind: ParameterType) -> Parameter | None:
        """Return the parameter for a literal; None if a person wants to keep the literal."""
        key = _key(value)
        if key in self.parameters:
            return self.parameters[key]
        if key in self._fixed_literals:
            return None
        name = self._name(value, kind)
        # Reserve the name even if the literal is kept, so that the other parameters keep the names
        # that the user has seen.
        self._unavailable_names.add(name)
        if name in self._refused_names:
            self._fixed_literals[key] = name
            return None
        parameter = self.parameters[key] = Parameter(name=name, type=kind, default=value)
        return parameter

    def _name(self, value: Value, kind: ParameterType) -> str:
        """Return an unused parameter name for a literal.

        The name is the keyword, key or variable that has the literal, or else a usual name of the
        literal's type.
        """
        suggested_name = self._names_from_first_pass.get(_key(value), "")
        words = "_".join(_WORD.findall(suggested_name)).lower()
        if kind == "date":
            by_length = {4: "year", 7: "month"}  # 2026 and 2026-10
            usual = by_length.get(len(str(value)), "day")
        else:
            usual = "number" if kind in ("integer", "number") else "value"
        name = words if words.isidentifier() else usual
        free_name = name
        number = 2
        while free_name in self._unavailable_names:
            free_name = f"{name}_{number}"
            number += 1
        return free_name

    def _replace(self, node: ast.Constant, text: str) -> None:
        """Note that a literal is to be replaced by other source code."""
        assert node.end_lineno is not None and node.end_col_offset is not None  # noqa: S101, PT018
        place = _Replacement(
            line=node.lineno,
            begin=node.col_offset,
            end_line=node.end_lineno,
            end=node.end_col_offset,
            text=text,
        )
        self.replacements.append(place)


def _find_in_f_strings(
    script: str, tree: ast.AST, parameters: Iterable[Parameter]
) -> Iterator[_Replacement]:
    """Yield replacements for pieces of f-strings that equal a parameter's value.

    A short text such as ``AT`` is replaced in printed f-strings only: in a query or a command it
    may have another meaning.

    Args:
        script: The script.
        tree: The parsed script.
        parameters: The parameters.
    """
    fields_of_printed: dict[str, str] = {}
    fields_of_others: dict[str, str] = {}
    for item in parameters:
        text = str(item.default)
        is_short_text = item.type not in ("number", "integer") and len(text) <= _MIN_CHARACTERS
        if is_short_text and text.islower():  # may be a common word, such as ``in``
            continue
        fields_of_printed[text] = f"{{{item.name}}}"
        if not is_short_text:
            fields_of_others[text] = f"{{{item.name}}}"
    # In f"{price:.2f}", the format ``.2f`` is a JoinedStr, too, and must stay as it is.
    values = [node for node in ast.walk(tree) if isinstance(node, ast.FormattedValue)]
    format_specs = {value.format_spec for value in values}
    printed = set(_printed_f_strings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and node not in format_specs:
            fields = fields_of_printed if node in printed else fields_of_others
            yield from _replacements_in(node, script, fields)


def _replacements_in(
    node: ast.JoinedStr, script: str, fields: Mapping[str, str]
) -> Iterator[_Replacement]:
    """Yield the replacements of words in an f-string, such as ``Rome`` by ``{city}``.

    Args:
        node: The f-string.
        script: The script.
        fields: A mapping from word to field.
    """
    segment = ast.get_source_segment(script, node)
    if not fields or segment is None or not _is_single_f_string(segment):
        return
    longest_first = sorted(fields, key=len, reverse=True)
    pattern = re.compile("|".join(map(whole_word, longest_first)))
    for start, text in _texts_outside_braces(segment):
        for match in pattern.finditer(text):
            line, begin = _position_in(node, segment, start + match.start())
            end_line, end = _position_in(node, segment, start + match.end())
            yield _Replacement(
                line=line, begin=begin, end_line=end_line, end=end, text=fields[match[0]]
            )


def _printed_f_strings(tree: ast.AST) -> Iterator[ast.JoinedStr]:
    """Yield the f-strings that a script passes to ``print``.

    An f-string inside of another call, such as ``print(len(f"{name}"))``, is not printed.
    """
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "print":
            continue
        unvisited: list[ast.AST] = [*call.args]
        while unvisited:
            node = unvisited.pop()
            if isinstance(node, ast.JoinedStr):
                yield node
            if not isinstance(node, ast.Call):
                unvisited += ast.iter_child_nodes(node)


def _texts_outside_braces(segment: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of an f-string that are not in braces, each with its index."""
    start = 0
    for braces in _BRACES.finditer(segment):
        yield start, segment[start : braces.start()]
        start = braces.end()
    yield start, segment[start:]


def _position_in(node: ast.JoinedStr, segment: str, index: int) -> tuple[int, int]:
    """Return the line and the column of a character, as in :class:`_Replacement`.

    Args:
        node: The f-string.
        segment: The source of the f-string.
        index: The index of the character in ``segment``.
    """
    lines_before = segment[:index].split("\n")
    column = len(lines_before[-1].encode())
    is_in_first_line = len(lines_before) == 1
    if is_in_first_line:
        column += node.col_offset
    return node.lineno + len(lines_before) - 1, column


def _is_single_f_string(segment: str) -> bool:
    """Return True if source code is a single f-string, and not several adjacent strings."""
    if not _F_STRING.match(segment):
        return False
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(segment).readline))
    except (tokenize.TokenError, SyntaxError):
        return False
    # Before Python 3.12, an f-string is one token. Since then, it has tokens for its beginning and
    # its end, and between them the tokens of the strings in its braces.
    count = 0
    depth = 0
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if depth == 0 and kind in ("STRING", "FSTRING_START"):
            count += 1
        if kind == "FSTRING_START":
            depth += 1
        elif kind == "FSTRING_END":
            depth -= 1
    return count == 1


def _f_string(value: str, variables: Mapping[str, str]) -> str:
    """Return an f-string for a text, in which variables replace some pieces.

    Args:
        value: The text.
        variables: A mapping from piece to variable name.
    """
    # A longer piece may contain a shorter one, so search for it first.
    longest_first = sorted(variables, key=len, reverse=True)
    pattern = re.compile("|".join(map(whole_word, longest_first)))
    parts: list[str] = []
    position = 0
    for match in pattern.finditer(value):
        parts.append(_escape(value[position : match.start()]))
        parts.append("{" + variables[match[0]] + "}")
        position = match.end()
    parts.append(_escape(value[position:]))
    body = "".join(parts)
    quotes = '"""' if "\n" in value else '"'
    return f"f{quotes}{body}{quotes}"


def whole_word(piece: str) -> str:
    """Return a regex that finds a piece of text as a whole word.

    The number ``5`` is not found in ``1.5``, ``5-1`` or ``5%``.
    """
    if _STANDALONE_NUMBER.fullmatch(piece):
        return rf"(?<![\w.-]){re.escape(piece)}(?![\w%-]|\.\d)"
    return rf"(?<!\w){re.escape(piece)}(?!\w)"


def spelled_out_dates(task: str) -> set[str]:
    """Return the dates and months that a task spells out: ``2026-10`` for October 2026."""
    dates: set[str] = set()
    for match in _SPELLED_OUT_DATE.finditer(task):
        number = _MONTHS.index(match["month"][:3].casefold()) + 1
        month = f"{match['year']}-{number:02}"
        day = match["before"] or match["after"]
        date = month if day is None else f"{month}-{int(day):02}"
        dates.add(date)
    return dates


def _escape(text: str) -> str:
    """Escape a text for an f-string in double quotes.

    Line breaks stay, because :func:`_f_string` then uses triple quotes.
    """
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("{", "{{").replace("}", "}}")
    return text.replace("\r", "\\r").replace("\t", "\\t").replace("\x00", "\\0")


def _apply_replacements(script: str, places: Iterable[_Replacement]) -> str:
    """Apply replacements to a script, last one first, so that positions stay valid."""
    # Python's parser counts the columns of a line in bytes.
    lines = [line.encode() for line in script.split("\n")]
    for place in sorted(places, key=lambda item: (item.line, item.begin), reverse=True):
        first = place.line - 1
        last = place.end_line - 1
        tail = lines[last][place.end :]
        lines[first : last + 1] = [lines[first][: place.begin] + place.text.encode() + tail]
    return b"\n".join(lines).decode()


def _title(task: str) -> str:
    line = " ".join(task.split())
    if len(line) <= _LONGEST_TITLE:
        return line
    return f"{line[: _LONGEST_TITLE - 1]}…"
