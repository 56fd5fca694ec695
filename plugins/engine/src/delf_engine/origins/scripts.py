"""Sources of the values of a script's calls, read from the script's text.

A value is known if the call itself states how the value is made of constants and results. A name
counts only if plain statements of the top level bind it. All else is unknown.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from delf_engine.origins.values import parameter_of

_PLAIN: Final = (
    "abs bool chr dict enumerate float format int len list max min next ord range repr round set "
    "sorted str sum tuple"
)
"""Builtins that introduce no data of others."""
_PURE: Final = "base64 datetime math string textwrap zoneinfo"
"""Modules that introduce no data of others, and whose values cannot be changed."""
_HIDDEN_WAYS: Final = ("globals", "locals", "vars", "setattr", "exec", "eval")
"""Names by which a script changes variables without a statement that shows it."""
_JUMPS: Final = (ast.Break, ast.Continue)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_TELLING: Final = (
    "casefold count date endswith format get index isoformat items join keys lower replace split "
    "splitlines startswith strftime strip title upper values"
)
"""Methods that change no list, record or text, nor their arguments."""
_CHANGING: Final = (
    "add append clear discard extend insert pop popitem remove reverse setdefault sort update"
)
"""Methods that change a list, record or set, also where they are only named."""
_HARMLESS: Final = f"{_PLAIN} all any filter isinstance map print reversed type zip"
"""Builtins that change no argument, except ``next``."""
UNKNOWN: Final = "?"
"""A source, or the name of a field, that the script does not show."""
FIELD: Final = "."
"""The first character of a source that is the name of a read field."""


class Scripts:
    """The clean scripts of a task, which share their variables.

    Args:
        is_action: Returns whether a dotted name is an action.
        given: The variables with values of others.
    """

    def __init__(self, is_action: Callable[[str], bool], given: Iterable[str] = ()) -> None:
        self._is_action = is_action
        self._values: dict[str, list[ast.expr]] = defaultdict(list)
        """For each name, the expressions that it stands for; none for a module."""
        self._changed: set[str] = set()
        """The names whose values a call or an assignment may change."""
        self._aliased: dict[str, list[ast.expr]] = defaultdict(list)
        """For each variable, the expressions whose value it may share."""
        self._bound: Counter[str] = Counter(given)
        """The number of times that the scripts bind a name to anything else."""
        self._uses: Counter[str] = Counter()
        """The number of times that the last script has a name."""
        self._is_hidden = False
        """True if a script may change variables in a way that its text does not show."""
        self._calls: dict[str, list[ast.Call]] = {}
        """The calls of each action in the last script."""
        self._known: dict[tuple[str, str, int | None], frozenset[str] | None] = {}

    def add(self, code: str) -> None:
        """Analyse a script; invalid Python is ignored."""
        self._calls, self._known = defaultdict(list), {}
        try:
            tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        nodes, top = [*ast.walk(tree)], {*tree.body}
        self._uses = Counter(map(dotted, nodes))
        self._is_hidden = self._is_hidden or any(self._uses[each] for each in _HIDDEN_WAYS)
        for node in nodes:
            self._bound.update(_bound(node))
            if isinstance(node, ast.Call):
                self._calls[dotted(node.func)].append(node)
        for node in nodes:
            if isinstance(node, (ast.comprehension, ast.Call)) or node in top:
                self._add(node)
        self._find_changes(tree)

    def _find_changes(self, tree: ast.Module) -> None:
        """Add the names whose values a script may change, with all that share a changed value."""
        own = {each.name for each in tree.body if isinstance(each, _FUNCTIONS)}
        stored = set[str]()
        for node in ast.walk(tree):
            match node:
                case ast.Call():
                    self._changed.update(self._changed_by(node, own))
                case ast.AugAssign(target=ast.Name(id=name)):  # extends a list in place
                    stored.add(name)
                case ast.Attribute(attr=name, value=value) if name in _CHANGING.split():
                    self._changed.update(_roots(value))
                case (
                    ast.Subscript(value=value, ctx=ast.Store() | ast.Del())
                    | ast.Attribute(value=value, ctx=ast.Store() | ast.Del())
                ):
                    (stored if isinstance(value, ast.Name) else self._changed).update(_roots(value))
                case _:
                    pass
        # An assignment to a part binds the name anew, but what the name stood for changes, too.
        self._changed.update(*(_names(value) for name in stored for value in self._aliased[name]))
        todo = [*self._changed]
        for name in todo:
            for value in self._values.get(name, ()):
                new = {*_names(value)} - self._changed
                self._changed |= new
                todo += new

    def _changed_by(self, call: ast.Call, own: Container[str]) -> Iterator[str]:
        """Yield the names whose values a call may change: its object, and arguments by name."""
        name = dotted(call.func)
        if self._is_action(name):
            return
        if isinstance(call.func, ast.Attribute):
            telling, value = _TELLING.split(), call.func.value
            if call.func.attr not in telling:
                yield from _roots(value)
            if isinstance(value, ast.Constant) or call.func.attr in (*telling, "append"):
                return
        elif name in own or (name in _HARMLESS.split() and name != "next"):
            return
        for each in (*call.args, *(keyword.value for keyword in call.keywords)):
            if isinstance(each, (ast.Name, ast.Subscript, ast.Attribute, ast.Starred)):
                yield from _roots(each)

    def sources(
        self, action: str, parameters: Sequence[str], path: str, line: int | None
    ) -> frozenset[str] | None:
        """Return the actions and unknown names behind an argument in the last script.

        Returns:
            The names; None if the script's text has no such call, or may change variables in a way
            that it does not show. If the line of the call is unknown, all calls of the action
            count.
        """
        key = action, path, line
        if key not in self._known:
            every, name = self._calls.get(action, ()), letters_of_name(parameter_of(path))
            calls = [c for c in every if line is None or c.lineno <= line <= (c.end_lineno or 0)]
            given = [arguments_of(call, parameters) for call in calls]
            found = (each.get(name, each.get("*")) for each in given)
            nodes = [each for each in found if each is not None] or [ast.Name(UNKNOWN)]
            is_shown = calls and self._uses[action] <= len(every) and not self._is_hidden
            is_shown = is_shown and not self._is_passed_on(action.partition(".")[0])
            self._known[key] = frozenset(self._sources(nodes)) if is_shown else None
        return self._known[key]

    def _is_passed_on(self, connection: str) -> bool:
        """Return whether the last script uses a connection other than to name its actions."""
        if self._is_action(connection):
            return False
        named = (each for each in self._uses if each.startswith(f"{connection}."))
        return self._uses[connection] > sum(
            self._uses[each] for each in filter(self._is_action, named)
        )

    def _sources(self, nodes: Iterable[ast.expr]) -> Iterator[str]:
        """Yield the actions and fields in expressions, and ``?`` for unknown names."""
        todo, seen = [*nodes], set[str]()
        for node in todo:
            for name in {*self._read(node)} - seen:
                seen.add(name)
                todo += self._values.get(name, ())
                is_plain = name in self._values or name in _PLAIN.split()
                is_action = self._is_action(name)
                is_known = (is_plain or is_action) and not self._bound[name.partition(".")[0]]
                if name[0] == FIELD or (is_known and is_action):
                    yield name
                elif not is_known or (name in self._changed and self._values.get(name)):
                    yield UNKNOWN

    def _add(self, node: ast.AST, around: Sequence[ast.expr] = ()) -> None:
        """Add the values that a part of a script binds, unless an exception can skip the part.

        ``around`` decides how often the part runs.
        """
        targets: Sequence[ast.AST] = ()
        values: Sequence[ast.expr] = ()
        match node:
            case ast.Assign(targets=targets, value=value):
                places = (part.slice for part in _parts(targets) if isinstance(part, ast.Subscript))
                same = [each for each in targets if len(targets) > 1]
                values = [value, *places, *same, *around]
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                jumps = {type(each) for each in ast.walk(node)}.intersection(_JUMPS)
                targets = [] if ast.Break in jumps else [target]
                values = [*getattr(value, "elts", [value]), *around]
                match node:
                    case ast.For(
                        target=ast.Tuple(elts=[ast.Name(id=name) as number, item]),
                        iter=ast.Call(
                            func=ast.Name(id="enumerate"), args=[_, *start], keywords=keys
                        ),
                    ) if targets and [*_names(node)].count(name) == self._uses[name]:
                        # Within the loop, others decide only how often the script counts.
                        self._bind([number], [*start, *(each.value for each in keys), *around])
                        targets = [item]
                    case _:
                        pass
                if isinstance(node, ast.For) and not jumps:
                    for each in node.body:
                        if not isinstance(each, _FUNCTIONS):
                            self._add(each, values)
            case ast.Call(
                func=ast.Name(id="sorted" | "min" | "max") | ast.Attribute(attr="sort") as function
            ):
                targets = _parameters_of_key(node)
                values = [*node.args, *([] if isinstance(function, ast.Name) else [function.value])]
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                modules = {getattr(node, "module", None) or each.name for each in names}
                targets = names if modules <= {*_PURE.split()} else []
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._add_parameters(node)
            case _:
                pass
        self._bind(targets, values)

    def _add_parameters(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add the arguments of all calls of a function, unless the script passes it on."""
        calls, names = self._calls[node.name], [each.arg for each in node.args.args]
        given = [arguments_of(call, names) for call in calls]
        is_passed = self._uses[node.name] != len(calls) or bool(node.decorator_list)
        is_plain = not node.args.posonlyargs and self._bound[node.name] == 1
        if calls and is_plain and not is_passed and not any("*" in each for each in given):
            for parameter in node.args.args:
                letters = letters_of_name(parameter.arg)
                values = [each[letters] for each in given if letters in each]
                self._bind([parameter], [*values, *node.args.defaults])

    def _bind(self, targets: Sequence[ast.AST], values: Sequence[ast.expr]) -> None:
        """Record the values for which names may stand."""
        if any(isinstance(each, (ast.GeneratorExp, ast.Lambda)) for each in values):
            return
        for part in _parts(targets):
            for name in _bound(part):
                self._values[name] += values
                self._bound[name] -= 1
                is_whole = not isinstance(part, (ast.Attribute, ast.Subscript))
                self._aliased[name] += values if is_whole else ()

    def _read(self, node: ast.AST) -> Iterator[str]:
        """Yield the names, actions and fields in an expression; ``.?`` is an unknown field."""
        parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.Attribute() if self._is_action(name := dotted(node)):
                parts = [ast.Constant(0)]
                yield name
            case ast.Name(id=name):
                yield name
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args):
                parts = [value, *args, *node.keywords]
                if self._is_action(dotted(node.func)):
                    parts = [node.func, *parts[1:]]
                elif name == "get":
                    yield _field(args[0] if args else None)
            case ast.Attribute(attr=name):
                yield f"{FIELD}{name}"
            case ast.Subscript(slice=index) if not isinstance(index, (ast.Slice, ast.UnaryOp)):
                yield from [] if isinstance(getattr(index, "value", ""), int) else [_field(index)]
            case _:
                pass
        for each in parts:
            yield from self._read(each)


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node binds or changes, if any."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case (
            ast.Attribute(value=value, ctx=ast.Store() | ast.Del())
            | ast.Subscript(value=value, ctx=ast.Store() | ast.Del())
        ):
            yield from _roots(value)
        case ast.alias(name=name, asname=alias):
            yield alias or name.partition(".")[0]
        case _:
            name = getattr(node, "name", None) or getattr(node, "rest", None)
            yield from [name] if name else []


def arguments_of(call: ast.Call, parameters: Sequence[str]) -> Mapping[str, ast.expr]:
    """Return a call's arguments by normalised parameter name; ``*`` for all others.

    What is spread may be for each parameter that has no keyword of its own.
    """
    named = {letters_of_name(each.arg): each.value for each in call.keywords if each.arg}
    spread = [each.value for each in call.keywords if not each.arg]
    if any(isinstance(each, ast.Starred) for each in call.args):
        spread += call.args
    else:
        named |= dict(zip(map(letters_of_name, parameters), call.args, strict=False))
    return {**named, "*": ast.Tuple(elts=spread)} if spread else named


def _parameters_of_key(call: ast.Call) -> Sequence[ast.arg]:
    """Return the parameters of a call's ``key=lambda …``, unless they have defaults."""
    keys = [each.value for each in call.keywords if each.arg == "key"]
    found = [each.args for each in keys if isinstance(each, ast.Lambda)]
    return [arg for each in found if not each.defaults for arg in each.args]


def _field(key: ast.expr | None) -> str:
    """Return the name of a field as a source."""
    name = getattr(key, "value", None)
    return f"{FIELD}{name if isinstance(name, str) else UNKNOWN}"


def _roots(node: ast.AST) -> Iterator[str]:
    """Yield the names whose values a change of an expression's value changes, too."""
    match node:
        case ast.Subscript(value=value) | ast.Attribute(value=value):
            return _roots(value)
        case ast.Call(func=ast.Attribute(value=value, attr="get" | "setdefault"), args=[_, *rest]):
            return (name for each in (value, *rest) for name in _roots(each))
        case _:
            return _names(node)


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an expression."""
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _parts(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield all parts of expressions."""
    return (part for node in nodes for part in ast.walk(node))


def letters_of_name(name: str) -> str:
    """Convert a parameter's name for comparison: ``customerId`` equals ``customer_id``."""
    return name.replace("_", "").lower()


def dotted(node: ast.AST) -> str:
    """Return a dotted name such as ``mail.send``; empty for other expressions."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name) if inner := dotted(value):
            return f"{inner}.{name}"
        case _:
            return ""


def is_constant(node: ast.expr) -> bool:
    """Return whether an expression is a literal value, except ``...``."""
    try:
        return ast.literal_eval(node) is not ...
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
