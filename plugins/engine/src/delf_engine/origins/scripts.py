"""Sources of the values of a script's calls, derived from the script's code.

A clean script, whose author had read no text of others, is written for the user. Its code shows for
each argument whether constants, results or something unknown went into the value. A value counts as
others' words if anything of others went into it.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from delf_engine.origins.values import letters_of_name, names_in

_READERS: Final = "open input exec eval compile globals locals vars __import__"
"""Builtins that introduce data the script does not state."""
_PLAIN: Final = {*dir(builtins)}.difference(_READERS.split())
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
        self._values: dict[str, list[ast.AST]] = defaultdict(list)
        """All expressions assigned to each name, anywhere."""
        self._filled: dict[str, list[ast.AST]] = defaultdict(list)
        """All expressions that may have been put into each name's object."""
        self._functions: dict[str, list[ast.arguments]] = defaultdict(list)
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._last: dict[str, list[ast.Call]] = {}
        self._known: dict[tuple[str, str, int | None], frozenset[str] | None] = {}

    def add(self, code: str) -> None:
        """Analyse a script; invalid Python is ignored."""
        self._last, self._known = defaultdict(list), {}
        try:
            nodes = [*ast.walk(ast.parse(code))]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for node in nodes:
            self._declare(node)
        for node in nodes:
            self._take(node)
            if isinstance(node, ast.Call) and self._is_action(name := dotted(node.func)):
                self._calls[name].append(node)
                self._last[name].append(node)

    def stated(self, action: str) -> Iterator[ast.Call]:
        """Yield the calls of an action, in all scripts, with only constants as arguments."""
        for call in self._calls.get(action, ()):
            if all(map(is_constant, (*call.args, *(each.value for each in call.keywords)))):
                yield call

    def sources(
        self, action: str, parameters: Sequence[str], path: str, line: int | None
    ) -> frozenset[str] | None:
        """Return the sources of an argument in the last script; None if unknown.

        Args:
            action: The called action.
            parameters: The names of its parameters, in their order.
            path: The value's place in the arguments.
            line: The line of the call; if unknown, any call of the action counts.

        Returns:
            The actions whose results went into the value, and the unknown names.
        """
        key = action, path, line
        if key not in self._known:
            every = self._last.get(action, [])
            calls = [each for each in every if line and _is_on(each, line)] or every
            parameter, *inner = names_in(path)
            found: set[str] = set()
            for call in calls:
                given = arguments_of(call, parameters)
                node = given.get(letters_of_name(parameter), given.get("*", _UNKNOWN))
                for each in _inner(node, inner, is_key="[key " in path and path.endswith("]")):
                    found.update(self._reached(each))
            self._known[key] = frozenset(found) if calls else None
        return self._known[key]

    def _reached(self, node: ast.AST) -> Iterator[str]:
        todo: list[ast.AST | None] = [node]
        seen: set[str] = set()
        while todo:
            match item := todo.pop():
                case ast.Call(func=func) if self._is_action(name := dotted(func)):
                    yield name
                    todo += [*item.args, *(each.value for each in item.keywords)]
                case ast.Name(id=name):
                    if name not in self._values and name not in _PLAIN:
                        yield name
                    if name not in seen:
                        todo += [*self._values.get(name, ()), *self._filled.get(name, ())]
                    seen.add(name)
                case ast.arguments(defaults=defaults, kw_defaults=more):
                    todo += [*defaults, *more]
                case ast.AnnAssign(value=value):
                    todo.append(value)
                case None:
                    pass
                case _:
                    todo += ast.iter_child_nodes(item)

    def _declare(self, node: ast.AST) -> None:
        """Record a function; its name stands for everything in its body."""
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self._functions[name].append(node.args)
                self._values[name] += [node.args, *node.body, *node.decorator_list]
            case ast.ClassDef(name=name, body=body):
                made = (each.args for each in body if isinstance(each, ast.FunctionDef))
                self._functions[name] += made
                self._values[name] += body
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(args=arguments)):
                self._functions[name].append(arguments)
            case ast.arguments():
                for name in _names_of(node):
                    self._values[name] += []
            case _:
                pass

    def _take(self, node: ast.AST) -> None:
        """Record what a statement or call assigns to names."""
        for target, value in _assigned(node):
            self._bind(target, value)
        match node:
            case ast.For(iter=condition) | ast.While(test=condition):
                leaves = (each for each in ast.walk(node) if isinstance(each, ast.If))
                ends = (each.test for each in leaves if _leaves_loop(each))
                self._bind_assigned(node, condition, *ends)
            case ast.If(test=condition) | ast.Match(subject=condition):
                self._bind_assigned(node, condition)
            case ast.Try(body=body, handlers=handlers):
                self._bind_assigned(node, *body)
                for handler in handlers:
                    self._values[handler.name or ""] += body
            case ast.With(items=items, body=body):
                for item in items:
                    self._fill(item.context_expr, body)
            case ast.Expr(value=value):  # what it gives back is not used: it changes something
                outer = value.value if isinstance(value, ast.Await) else value
                if not (isinstance(outer, ast.Call) and self._only_tells(outer)):
                    for call in ast.walk(value):
                        if isinstance(call, ast.Call):
                            self._take_change(call)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self._values[name].append(_UNKNOWN)
            case ast.Import(names=names):
                for each in names:
                    self._import(each.name, each.asname or each.name.partition(".")[0])
            case ast.ImportFrom(module=module, names=names):
                for each in names:
                    self._import(module or "", each.asname or each.name)
            case ast.Call():
                self._take_call(node)
            case _:
                pass

    def _bind_assigned(self, node: ast.AST, *conditions: ast.AST) -> None:
        """Record the conditions that decide about an assignment."""
        for inner in ast.walk(node):
            for target, _ in _assigned(inner):
                for condition in conditions:
                    self._bind(target, condition)

    def _only_tells(self, call: ast.Call) -> bool:
        name = dotted(call.func)
        is_plain = all(each.arg != "file" for each in call.keywords)
        return self._is_action(name) or (name == "print" and is_plain)

    def _take_change(self, call: ast.Call) -> None:
        given = [*call.args, *(each.value for each in call.keywords)]
        for each in (call.func, *given):
            self._fill(each, given)

    def _fill(self, node: ast.AST, values: Sequence[ast.AST]) -> None:
        """Record values put into an object under the object's names."""
        for name in ast.walk(node):
            if isinstance(name, ast.Name):
                self._filled[name.id] += (each for each in values if each is not node)

    def _bind(self, target: ast.AST, value: ast.AST) -> None:
        match target, value:
            case (
                (ast.Tuple(elts=to) | ast.List(elts=to)),
                (ast.Tuple(elts=items) | ast.List(elts=items)),
            ) if len(to) == len(items):
                for each, item in zip(to, items, strict=True):
                    self._bind(each, item)
            case ((ast.Tuple(elts=to) | ast.List(elts=to)), _):
                for each in to:
                    self._bind(each, value)
            case ast.Subscript(value=inner, slice=place), _:
                self._bind(inner, place)
                self._bind(inner, value)
            case ((ast.Starred(value=inner) | ast.Attribute(value=inner)), _):
                self._bind(inner, value)
            case ast.Name(id=name), _:
                self._values[name].append(value)
            case _:
                pass

    def _import(self, module: str, name: str) -> None:
        self._values[name] += [] if module.partition(".")[0] in _PURE.split() else [_UNKNOWN]

    def _take_call(self, node: ast.Call) -> None:
        """Record a call's arguments for the function's parameters or the method's object."""
        given = [*node.args, *(each.value for each in node.keywords)]
        name = dotted(node.func).rpartition(".")[2] or getattr(node.func, "attr", "")
        if name == "pop":
            self._take_change(node)
        for arguments in self._functions.get(name, ()):
            names = [each for each in _names_of(arguments) if each != "self"]
            parts = arguments_of(node, names)
            is_plain = "*" not in parts and not (arguments.vararg or arguments.kwarg)
            for each in names:
                part = parts.get(letters_of_name(each))
                self._values[each] += filter(None, [part]) if is_plain else given
        for value in given:  # a function that is passed on gets what is passed on with it
            passed = [value.args] if isinstance(value, ast.Lambda) else []
            passed += self._functions.get(dotted(value), [])
            for each in (name for arguments in passed for name in _names_of(arguments)):
                self._values[each] += [node.func, *(item for item in given if item is not value)]


def _leaves_loop(node: ast.AST) -> bool:
    return any(isinstance(each, (ast.Break, ast.Continue)) for each in ast.walk(node))


def _is_on(call: ast.Call, line: int) -> bool:
    return call.lineno <= line <= (call.end_lineno or line)


def _assigned(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield the targets of an assignment, each with its value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case (
            ast.AnnAssign(target=target, value=ast.AST() as value)
            | ast.AugAssign(target=target, value=value)
            | ast.NamedExpr(target=target, value=value)
            | ast.comprehension(target=target, iter=value)
            | ast.For(target=target, iter=value)
            | ast.AsyncFor(target=target, iter=value)
            | ast.withitem(optional_vars=ast.AST() as target, context_expr=value)
        ):
            yield target, value
        case _:
            pass


def _inner(node: ast.expr, names: Sequence[str], *, is_key: bool) -> Iterator[ast.expr]:
    """Follow names into literal records, as far as possible."""
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for item in items:
                yield from _inner(item, names, is_key=is_key)
        case ast.Dict(keys=keys, values=values) if all(isinstance(k, ast.Constant) for k in keys):
            for key, value in zip(keys, values, strict=True):
                if names and isinstance(key, ast.Constant) and key.value == names[0]:
                    yield from _inner(value, names[1:], is_key=is_key)
        case _:
            yield node


def _names_of(arguments: ast.arguments) -> Iterator[str]:
    rest = filter(None, (arguments.vararg, arguments.kwarg))
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest):
        yield each.arg


def arguments_of(call: ast.Call, parameters: Sequence[str]) -> Mapping[str, ast.expr]:
    """Return a call's arguments by normalised parameter name; ``*`` for all others.

    Args:
        call: The call.
        parameters: The names of the parameters, in their order.
    """
    given = dict(zip(map(letters_of_name, parameters), call.args, strict=False))
    given |= {letters_of_name(each.arg or "*"): each.value for each in call.keywords}
    spread = next((each for each in call.args if isinstance(each, ast.Starred)), None)
    return given if spread is None else {"*": spread}


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
