"""Sources of the values of a script's calls, read from the script's text.

The order of statements does not count. What a statement binds or may change depends on all that the
statement reads, and on all that decides whether the statement is reached. What is not understood
counts as an unknown source.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from delf_engine.origins.values import parameter_of

_UNTRUSTED_BUILTINS: Final = "open input exec eval compile globals locals vars __import__"
"""Builtins that introduce data the script does not state."""
_PLAIN: Final = {*dir(builtins), "asyncio"}.difference(_UNTRUSTED_BUILTINS.split())
_USING_UP: Final = ("next", "zip", "map", "filter", "enumerate")
"""Builtins that may use up an iterator."""
_PURE: Final = (
    "asyncio base64 calendar collections copy csv dataclasses datetime decimal enum fractions "
    "functools hashlib heapq html io itertools json math operator random re statistics string "
    "textwrap time typing unicodedata uuid zoneinfo"
)
"""Modules that introduce no data of others."""
_TELLING: Final = (
    "casefold center copy count date decode dumps encode endswith find findall finditer format "
    "fromisoformat fullmatch get group groups index isalpha isdigit isoformat items join keys "
    "ljust loads lower lstrip match mean most_common now partition removeprefix removesuffix "
    "replace rfind rjust rpartition rsplit rstrip search split splitlines startswith strftime "
    "strip strptime sub sum title today total_seconds upper values zfill"
)
"""Methods of usual objects that change neither their object nor their arguments."""
_HIDDEN_WAYS: Final = (
    "globals locals vars setattr delattr exec eval redirect_stdout redirect_stderr getcontext "
    "localcontext setcontext"
)
"""Names by which a script changes values without a statement that shows it."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (ast.stmt, ast.excepthandler, ast.match_case)
_NEW: Final = (ast.JoinedStr, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Lambda)
"""Expressions whose value is a new object."""
_CONDITIONS: Final = (ast.BoolOp, ast.IfExp, ast.comprehension)
_LEAVE: Final = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_UNKNOWN: Final = "?"


class Scripts:
    """The clean scripts of a task, which share their variables.

    Args:
        is_action: Returns whether a dotted name is an action.
        given: The variables with values of others.
    """

    def __init__(self, is_action: Callable[[str], bool], given: Iterable[str] = ()) -> None:
        self._is_action = is_action
        self._sources: dict[str, set[str]] = defaultdict(set)
        """For each bound name, the names and actions that may get into its object. ``f()`` stands
        for what decides whether the function ``f`` is called."""
        for name in given:
            self._sources[name].add(_UNKNOWN)
        self._shared: dict[str, set[str]] = defaultdict(set)
        """For each bound name, the names that may stand for the same object or a part of it."""
        self._parameters: dict[str, set[str]] = defaultdict(set)
        """The parameters of each function of the scripts."""
        self._changes: list[tuple[set[str], set[str]]] = []
        """Names whose objects a statement may change, with what may get there."""
        self._is_hidden = False
        """True if a script may change values in a way that its text does not show."""
        self._calls: dict[str, list[ast.Call]] = {}
        """The calls of each action in the last script."""
        self._passed_on: set[str] = set()
        """The names that are values, such as an action that is not called."""
        self._known: dict[tuple[str, str, int | None], frozenset[str] | None] = {}

    def add(self, code: str) -> None:
        """Analyse a script; invalid Python is ignored."""
        self._calls, self._passed_on, self._known = defaultdict(list), set(), {}
        try:
            tree = ast.parse(code)
            nodes = [*ast.walk(tree)]
            for node in nodes:
                self._define(node)
            self._add(tree, set())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for names, sources in self._changes:
            for name in _reached(names, self._shared).intersection(self._sources):
                self._sources[name] |= sources
        called = set[int]()
        for call in (each for each in nodes if isinstance(each, ast.Call)):
            self._calls[dotted(call.func)].append(call)
            called.update(map(id, ast.walk(call.func)) if dotted(call.func) else ())
        self._passed_on.update(dotted(node) for node in nodes if id(node) not in called)

    def sources(
        self, action: str, parameters: Sequence[str], path: str, line: int | None
    ) -> frozenset[str] | None:
        """Return the actions and unknown names behind an argument in the last script.

        Returns:
            The names; None if the script's text has no such call, or may change values in a way
            that it does not show. If the line of the call is unknown, all calls of the action
            count.
        """
        key = action, path, line
        if key not in self._known:
            every = self._calls.get(action, ())
            calls = [c for c in every if line and c.lineno <= line <= (c.end_lineno or line)]
            name, found = letters_of_name(parameter_of(path)), set[str]()
            for call in calls or every:
                given = arguments_of(call, parameters)
                node = given.get(name, given.get("*"))
                found.update(self._read(node) if node else [_UNKNOWN])
            reached = frozenset(filter(self._is_source, _reached(found, self._sources)))
            is_hidden = self._is_hidden or action in self._passed_on or not every
            self._known[key] = None if is_hidden else reached
        return self._known[key]

    def _is_source(self, name: str) -> bool:
        return self._is_action(name) or (name not in self._sources and name not in _PLAIN)

    def _define(self, node: ast.AST) -> None:
        """Record the parameters of functions, and constructs that hide changes."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                self._parameters[name] |= _parameters(node)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self._parameters[name] |= _parameters(node)
            case ast.ClassDef():  # its methods may be called by operators or a base class
                self._is_hidden = self._is_hidden or bool(_parameters(node))
            case ast.Name(id=name) | ast.alias(name=name) if name in _HIDDEN_WAYS.split():
                self._is_hidden = True
            case ast.Attribute(attr=name, ctx=context):
                is_output = name in ("stdout", "stderr") and isinstance(context, ast.Store)
                self._is_hidden = self._is_hidden or is_output or name in _HIDDEN_WAYS.split()
            case _:
                pass

    def _add(self, node: ast.AST, deciding: set[str]) -> None:
        """Add a statement with its nested statements; ``deciding`` decides whether it runs."""
        parts = [*ast.iter_child_nodes(node)]
        outer = [part for part in parts if not isinstance(part, _BLOCKS)]
        nodes = [node, *(each for part in outer for each in ast.walk(part))]
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            deciding = deciding | {f"{name}()" for each in node.targets for name in _bound(each)}
        reads = deciding.union(*map(self._read, outer))
        if any(isinstance(each, _CONDITIONS) for each in nodes):
            deciding = reads
        inside = self._deciding(node, reads)
        if isinstance(node, (ast.For, ast.AsyncFor)):  # a loop may use up an iterator
            self._changes.append(({*self._objects(node.iter)}, inside))
        comprehensions = [each for each in nodes if isinstance(each, ast.comprehension)]
        generators = {id(e): each.iter for each in comprehensions for e in ast.walk(each.target)}
        objects = {*self._objects(*outer)}
        for each in nodes:
            match each:
                case ast.Call():
                    self._add_call(each, deciding)
                case ast.Subscript(ctx=context) | ast.Attribute(ctx=context):
                    if not isinstance(context, ast.Load):
                        self._changes.append(({*self._objects(each)}, reads))
                case ast.AugAssign(target=ast.Name(id=name)):
                    self._changes.append(({name}, reads))
                case _:
                    pass
            for name in _bound(each):
                iterated = generators.get(id(each))
                within = reads if isinstance(each, ast.arg) else reads | inside
                self._sources[name].update(self._read(iterated) if iterated else within)
                self._shared[name] |= objects
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            self._sources[node.name].update(self._read(node))
        for part in parts:
            if isinstance(part, _BLOCKS):
                self._add(part, inside)

    def _add_call(self, call: ast.Call, deciding: set[str]) -> None:
        """Add the objects that a call may change, and its arguments to the script's functions."""
        reads = deciding.union(self._read(call))
        parts = [call.func, *call.args, *(each.value for each in call.keywords)]
        for name in (each.id for each in parts if isinstance(each, ast.Name)):
            if name in self._parameters:
                self._sources[f"{name}()"] |= deciding if name == dotted(call.func) else reads
            for parameter in self._parameters.get(name, ()):
                for each in parts:
                    if getattr(each, "id", "") != name:
                        self._sources[parameter].update(self._read(each))
                        self._shared[parameter].update(self._objects(each))
        if self._may_change(call):
            self._changes.append(({*self._objects(*parts)}, reads))

    def _may_change(self, call: ast.Call) -> bool:
        match call.func:
            case _ if self._is_action(dotted(call.func)):
                return False
            case ast.Attribute(attr=name):
                return name not in _TELLING.split()
            case ast.Name(id="print"):
                return any(each.arg == "file" for each in call.keywords)
            case ast.Name(id=name):
                return name in _USING_UP or not (name in _PLAIN or name in self._parameters)
            case _:
                return True

    def _deciding(self, node: ast.AST, reads: set[str]) -> set[str]:
        """Return the names that decide whether, or how often, nested statements run."""
        match node:
            case ast.Import(names=names):
                return reads if all(_is_pure(each.name) for each in names) else {_UNKNOWN}
            case ast.ImportFrom(module=module):
                return reads if _is_pure(module or "") else {_UNKNOWN}
            case ast.Try(body=body) | ast.With(body=body) | ast.AsyncWith(body=body):
                # A swallowed exception skips the rest of the body.
                return reads.union(*map(self._read, body))
            case _ if isinstance(node, (ast.For, ast.AsyncFor, ast.While, *_FUNCTIONS)):
                tests = [e for e in ast.walk(node) if isinstance(e, (ast.If, ast.Match, ast.Try))]
                ends = [e for e in tests if any(isinstance(i, _LEAVE) for i in ast.walk(e))]
                heads = [part for each in ends for part in _heads(each)]
                called = {f"{node.name}()"} if isinstance(node, _FUNCTIONS) else reads
                return called.union(*map(self._read, heads))
            case _:
                return reads

    def _read(self, node: ast.AST) -> Iterator[str]:
        """Yield the names and the actions in a node."""
        match node:
            case ast.Attribute() if self._is_action(name := dotted(node)):
                yield name
            case ast.Name(id=name):
                yield name
            case _:
                for each in ast.iter_child_nodes(node):
                    yield from self._read(each)

    def _objects(self, *nodes: ast.AST) -> Iterator[str]:
        """Yield the names whose objects may be in the values of expressions."""
        for node in nodes:
            match node:
                case ast.Name(id=name):
                    yield name
                case ast.Subscript(value=value):
                    yield from self._objects(value)
                case _:
                    is_new = isinstance(node, ast.Call) and self._is_action(dotted(node.func))
                    if not (is_new or isinstance(node, _NEW)):
                        yield from self._objects(*ast.iter_child_nodes(node))


def _reached(names: Iterable[str], graph: Mapping[str, set[str]]) -> set[str]:
    """Return all names that a graph leads to from some names."""
    seen, todo = set[str](), [*names]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            first = name.partition(".")[0]  # the script may have assigned the attribute
            todo += [*graph.get(name, ()), *([first] if first in graph else [])]
    return seen


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node binds, if any."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.alias(name=name, asname=alias):
            yield alias or name.partition(".")[0]
        case _:
            name = getattr(node, "name", None) or getattr(node, "rest", None)
            yield from [name] if name else []


def _heads(node: ast.If | ast.Match | ast.Try) -> Sequence[ast.AST]:
    """Return the parts that decide which branch of a statement runs."""
    if isinstance(node, ast.Try):
        return node.body
    return [node.test if isinstance(node, ast.If) else node.subject]


def _is_pure(module: str) -> bool:
    return module.partition(".")[0] in _PURE.split()


def _parameters(node: ast.AST) -> set[str]:
    return {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}


def arguments_of(call: ast.Call, parameters: Sequence[str]) -> Mapping[str, ast.expr]:
    """Return a call's arguments by normalised parameter name; ``*`` for all others."""
    given = dict(zip(map(letters_of_name, parameters), call.args, strict=False))
    given |= {letters_of_name(each.arg or "*"): each.value for each in call.keywords}
    spread = next((each for each in call.args if isinstance(each, ast.Starred)), None)
    return given if spread is None else {"*": spread}


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
