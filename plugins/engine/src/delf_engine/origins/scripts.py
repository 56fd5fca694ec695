"""Sources of the values of a script's calls, read from the script's text.

The order of statements does not count: a name stands for everything that any statement may put
into its object. What is not understood counts as an unknown source.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from delf_engine.origins.values import parameter_of

_READERS: Final = "open input exec eval compile globals locals vars __import__"
"""Builtins that introduce data the script does not state."""
_PLAIN: Final = {*dir(builtins), "asyncio"}.difference(_READERS.split())
_PURE: Final = (
    "asyncio base64 calendar collections copy csv dataclasses datetime decimal enum fractions "
    "functools hashlib heapq html io itertools json math operator random re statistics string "
    "textwrap time typing unicodedata uuid zoneinfo"
)
"""Modules that introduce no data of others."""
_UNKNOWN: Final = ast.Name("?", ast.Load())


class Scripts:
    """The clean scripts of a task, which share their variables.

    Args:
        is_action: Returns whether a dotted name is an action.
    """

    def __init__(self, is_action: Callable[[str], bool]) -> None:
        self._is_action = is_action
        self._made_of: dict[str, list[ast.AST]] = defaultdict(list)
        """The expressions and statements that may put something into each name's object."""
        self._last: dict[str, list[ast.Call]] = {}
        self._known: dict[tuple[str, str, int | None], frozenset[str] | None] = {}

    def add(self, code: str) -> None:
        """Analyse a script; invalid Python is ignored."""
        self._last, self._known = defaultdict(list), {}
        try:
            nodes = [*ast.walk(ast.parse(code))]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        self._pass_arguments(nodes)
        for node in nodes:
            for names, sources in self._changes(node):
                self._put(names, sources)
            if conditions := _conditions(node):
                for inner in ast.walk(node):
                    for names, _ in self._changes(inner):
                        self._put(names, conditions)
            if isinstance(node, ast.Call) and self._is_action(name := dotted(node.func)):
                self._last[name].append(node)

    def sources(
        self, action: str, parameters: Sequence[str], path: str, line: int | None
    ) -> frozenset[str] | None:
        """Return the actions and unknown names behind an argument in the last script.

        Returns:
            The names; None if the script's text has no such call. If the line of the call is
            unknown, all calls of the action count.
        """
        key = action, path, line
        if key not in self._known:
            every = self._last.get(action, [])
            calls = [c for c in every if line and c.lineno <= line <= (c.end_lineno or line)]
            name, found = letters_of_name(parameter_of(path)), set[str]()
            for call in calls or every:
                given = arguments_of(call, parameters)
                found.update(self._reached(given.get(name, given.get("*", _UNKNOWN))))
            self._known[key] = frozenset(found) if every else None
        return self._known[key]

    def _reached(self, node: ast.AST) -> Iterator[str]:
        todo, seen = [node], set[str]()
        while todo:
            match item := todo.pop():
                case ast.Call(func=func) if self._is_action(name := dotted(func)):
                    yield name
                    todo += _given_to(item)
                case ast.Name(id=name) if name not in seen:
                    seen.add(name)
                    if name not in self._made_of and name not in _PLAIN:
                        yield name
                    todo += self._made_of.get(name, ())
                case ast.Name():
                    pass
                case _:
                    todo += ast.iter_child_nodes(item)

    def _put(self, names: Iterable[str], sources: Iterable[ast.AST]) -> None:
        for name in names:
            self._made_of[name] += sources

    def _changes(self, node: ast.AST) -> Iterator[tuple[Iterable[str], Sequence[ast.AST]]]:
        """Yield the names that a node may change, with what the node may put into them."""
        parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        match node:
            case ast.Expr(value=value) if not self._only_tells(value):
                # What it gives back is not used: it changes something.
                yield from (pair for each in ast.walk(value) for pair in _passed(each))
            case ast.Call(func=ast.Attribute(attr="pop")):
                yield from _passed(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield [node.name], [node]
            case ast.arguments():
                yield _parameters(node), parts
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield [name], [_UNKNOWN]
            case ast.Try(body=body, handlers=handlers):
                yield [each.name for each in handlers if each.name], body
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                module = getattr(node, "module", None)
                for each in imported:
                    is_pure = (module or each.name).partition(".")[0] in _PURE.split()
                    name = each.asname or each.name.partition(".")[0]
                    yield [name], [] if is_pure else [_UNKNOWN]
            case ast.comprehension(target=target, iter=source):
                yield _names(target), [source]
            case _:
                targets = [each for each in parts if isinstance(getattr(each, "ctx", 0), ast.Store)]
                plain = [each for each in targets if isinstance(each, (ast.Name, ast.Tuple))]
                sources = [each for each in parts if each not in plain]
                yield from ((_names(each), sources) for each in targets)

    def _only_tells(self, value: ast.expr) -> bool:
        """Return whether a statement is a call that changes no object of the script."""
        call = value.value if isinstance(value, ast.Await) else value
        if not isinstance(call, ast.Call):
            return False
        name, options = dotted(call.func), {each.arg for each in call.keywords}
        return self._is_action(name) or (name == "print" and "file" not in options)

    def _pass_arguments(self, nodes: Sequence[ast.AST]) -> None:
        """Add a call's arguments to the parameters of each function that the call names."""
        functions: dict[str, list[str]] = defaultdict(list)
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                    functions[name] += _parameters(node)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    functions[node.name] += _parameters(node)
                case _:
                    pass
        for call in nodes:
            given = [call.func, *_given_to(call)] if isinstance(call, ast.Call) else []
            for value in given:
                name = getattr(value, "attr", getattr(value, "id", ""))
                is_lambda = isinstance(value, ast.Lambda)
                names = _parameters(value) if is_lambda else functions[name]
                self._put(names, [each for each in given if each is not value])


def _conditions(node: ast.AST) -> Sequence[ast.AST]:
    """Return what decides whether, or how often, the statements in a statement are reached."""
    match node:
        case ast.For(iter=condition) | ast.AsyncFor(iter=condition) | ast.While(test=condition):
            ifs = [each for each in ast.walk(node) if isinstance(each, ast.If)]
            leave = ast.Break | ast.Continue
            ends = [e.test for e in ifs if any(isinstance(each, leave) for each in ast.walk(e))]
            return [condition, *ends]
        case ast.If(test=condition) | ast.Match(subject=condition):
            return [condition]
        case ast.Try(body=body):
            return body
        case _:
            return []


def _passed(node: ast.AST) -> Iterator[tuple[Sequence[str], Sequence[ast.AST]]]:
    """Yield the names in each part of a call, with the other arguments that the part gets."""
    if isinstance(node, ast.Call):
        given = _given_to(node)
        for part in (node.func, *given):
            yield _names(part), [each for each in given if each is not part]


def _names(node: ast.AST) -> Sequence[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]


def _parameters(node: ast.AST) -> Sequence[str]:
    return [each.arg for each in ast.walk(node) if isinstance(each, ast.arg)]


def _given_to(call: ast.Call) -> Sequence[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


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
