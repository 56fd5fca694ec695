"""Forecast of the minimum number of calls that a script makes, from its source.

Only calls that certainly run are counted. A loop counts if its length is constant: over a literal,
a ``range`` of constants, or a name assigned such a value once. Code that may not run, such as an
``if``, an ``except`` or a loop with ``break``, is not counted, nor is a call by another name, such
as ``send`` after ``send = mail.send``.

A call that is not counted is stopped by the limit while the script runs, after earlier calls may
have changed something. A call that is counted and never made would refuse a script for nothing.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from delf.bindings import name_bound_by
from delf.protocols.sandbox import check_script

# Functions whose result is as long as their first argument.
_SAME_LENGTH: Final = frozenset({"list", "tuple", "sorted", "reversed", "enumerate", "iter"})
_LEAVING_STATEMENTS: Final = (ast.Break, ast.Return, ast.Raise, ast.Continue)
# Functions that end the script, so that the statements after the call do not run.
_ENDING_FUNCTIONS: Final = frozenset({"rerun", "exit", "quit", "_exit"})
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def least_calls(code: str, names: Collection[str]) -> Counter[str]:
    """Count the calls that a script certainly makes, provided that no call fails.

    Args:
        code: The script; an invalid or very large script counts as making no calls.
        names: The names of actions and tools to count, such as ``mail.send``.
    """
    is_too_large = check_script(code) is not None
    if not names or is_too_large:
        return Counter()
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(code)
        return _CallCounter(tree, names).count_in_body(tree.body)
    except (SyntaxError, SystemError, ValueError, RecursionError, MemoryError):
        return Counter()


class _CallCounter:
    """Counts the calls that the parts of one script certainly make.

    Args:
        tree: The syntax tree of the whole script.
        action_names: The names of the actions and tools to count.
    """

    def __init__(self, tree: ast.Module, action_names: Collection[str]) -> None:
        # How often the script assigns, imports or defines each name.
        self._binding_counts: Counter[str] = Counter()
        # The names whose object the script may change, as in ``items.clear()``.
        self._changed_names: set[str] = set()
        self._functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        # The calls in each function of the script; empty for a recursive function.
        self._calls_by_function: dict[str, Counter[str]] = {}
        assigned_values: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            bound_name = name_bound_by(node)
            if bound_name is not None:
                self._binding_counts[bound_name] += 1
            match node:
                case ast.Name(id=name, ctx=ast.Del()):
                    # ``del rows`` also changes what the name stands for.
                    self._binding_counts[name] += 1
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    assigned_values[name] = value
                # A decorator may keep calls from the body, as ``functools.cache`` does.
                case (
                    ast.FunctionDef(name=name, decorator_list=[])
                    | ast.AsyncFunctionDef(name=name, decorator_list=[])
                ):
                    self._functions[name] = node
                case (
                    ast.Attribute(value=ast.Name(id=name))
                    | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del())
                ):
                    self._changed_names.add(name)
                case _:
                    pass
        # The values of the variables that are assigned once and never changed.
        self._variables = {
            name: value for name, value in assigned_values.items() if self._is_constant(name)
        }
        # A name that the script itself binds is no longer the action.
        self._action_names = {
            name for name in action_names if name.partition(".")[0] not in self._binding_counts
        }

    def count_in_body(self, body: Iterable[ast.stmt]) -> Counter[str]:
        """Count the calls that a list of statements certainly makes.

        Statements after a possible ``return``, ``break`` or ``raise`` are ignored.
        """
        counts: Counter[str] = Counter()
        for statement in body:
            if isinstance(statement, _SCOPES):
                continue  # the definition of a function calls nothing
            counts += self._count_in(statement)
            if _may_leave(statement):
                break
        return counts

    def _count_in(self, node: ast.AST) -> Counter[str]:
        """Count the calls that a syntax node certainly makes, provided that no call fails.

        Parts of the node that may be skipped, such as the branches of an ``if``, do not count.
        """
        match node:
            case ast.Call():
                return self._count_in_call(node)
            case ast.For() | ast.AsyncFor():
                return self._count_in_loop(node)
            case ast.Try(body=body, finalbody=last) | ast.TryStar(body=body, finalbody=last):
                # No call fails, so no handler runs.
                return self.count_in_body(body) + self.count_in_body(last)
            case ast.ListComp(elt=item) | ast.SetComp(elt=item):
                return self._count_in_comprehension(node.generators, [item])
            case ast.DictComp(key=key, value=item):
                return self._count_in_comprehension(node.generators, [key, item])
            case ast.Starred(value=ast.GeneratorExp(generators=clauses, elt=item)):
                # ``f(*generator)`` reads all items of the generator.
                return self._count_in_comprehension(clauses, [item])
            case _:
                return self._count_in_all(_certain_children(node))

    def _count_in_loop(self, loop: ast.For | ast.AsyncFor) -> Counter[str]:
        # A loop with a ``break`` or similar may end in the first iteration.
        may_end_early = any(map(_may_leave, loop.body))
        iteration_count = 0 if may_end_early else _length(loop.iter, self._variables)
        return self._count_in(loop.iter) + _times(self.count_in_body(loop.body), iteration_count)

    def _count_in_all(self, nodes: Iterable[ast.AST]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for node in nodes:
            counts += self._count_in(node)
        return counts

    def _count_in_comprehension(
        self, for_clauses: list[ast.comprehension], element_expressions: list[ast.expr]
    ) -> Counter[str]:
        """Count the calls that a comprehension certainly makes.

        The first iterable is evaluated once, and the element expressions once in each iteration.
        """
        iteration_count = 1
        for clause in for_clauses:
            # A condition may drop all items.
            iteration_count *= 0 if clause.ifs else _length(clause.iter, self._variables)
        element_calls = self._count_in_all(element_expressions)
        return self._count_in(for_clauses[0].iter) + _times(element_calls, iteration_count)

    def _count_in_call(self, node: ast.Call) -> Counter[str]:
        """Count the calls of actions that a call expression certainly makes.

        The count includes the calls in the arguments. A call of an action counts itself; a call of
        a function of the script counts the calls in the function's body.
        """
        name = _dotted_name(node.func)
        counts = self._count_in_all(ast.iter_child_nodes(node))
        if name in self._action_names:
            counts[name] += 1
        # If the name is not constant, the script may call another function by this name.
        elif name in self._functions and self._is_constant(name):
            counts += self._count_in_function(name, self._functions[name])
        return counts

    def _count_in_function(
        self, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> Counter[str]:
        """Count the calls that a function of the script certainly makes.

        A generator function counts as making no calls, and so does a recursive call of the
        function.
        """
        if name not in self._calls_by_function:
            # Stored before the body is counted: a recursive call finds this entry, and ends.
            self._calls_by_function[name] = Counter()
            parts = _walk(function)
            is_generator = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in parts)
            # The body of a generator may not run to its end, so the entry stays without calls.
            if not is_generator:
                self._calls_by_function[name] = self.count_in_body(function.body)
        return self._calls_by_function[name]

    def _is_constant(self, name: str) -> bool:
        """Return whether a name is bound once, and its object is never changed."""
        return self._binding_counts[name] == 1 and name not in self._changed_names


def _certain_children(node: ast.AST) -> Iterable[ast.AST]:
    """Return the parts of a syntax node that certainly run, such as the test of an ``if``."""
    match node:
        case (
            ast.If(test=first)
            | ast.IfExp(test=first)
            | ast.While(test=first)
            | ast.Assert(test=first)
            | ast.BoolOp(values=[first, *_])
            | ast.Match(subject=first)
        ):
            return [first]
        case ast.Compare(left=left, comparators=[right, *_]):
            return [left, right]  # in a < b < c, c is only evaluated if a < b
        case ast.GeneratorExp(generators=[first_clause, *_]):
            return [first_clause.iter]  # (f(x) for x in rows) evaluates rows, but may not call f
        case _ if isinstance(node, _SCOPES):
            return []  # a ``def`` or ``lambda`` does not run its body
        case _:
            return ast.iter_child_nodes(node)


def _may_leave(node: ast.AST) -> bool:
    """Return whether a statement may skip the statements after it, as ``return`` does."""
    return any(
        isinstance(part, _LEAVING_STATEMENTS) or _is_ending_call(part) for part in _walk(node)
    )


def _is_ending_call(node: ast.AST) -> bool:
    """Return whether a syntax node is a call that ends the script, such as ``exit()``."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in _ENDING_FUNCTIONS
        case _:
            return False


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Walk a syntax tree without descending into functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _SCOPES):
            yield from _walk(child)


def _length(node: ast.AST, variables: Mapping[str, ast.expr]) -> int:
    """Return the minimum length of an iterable; 0 if nothing is known about the length.

    Args:
        node: The expression of the iterable.
        variables: The values of the variables whose lengths are known. A variable inside such a
            value counts as unknown.
    """
    match node:
        case ast.List(elts=items) | ast.Tuple(elts=items):
            # A starred item may stand for no item.
            return sum(not isinstance(item, ast.Starred) for item in items)
        case ast.Constant(value=str(text)):
            return len(text)
        case ast.Name(id=name) if name in variables:
            return _length(variables[name], variables={})
        case ast.ListComp(generators=[ast.comprehension(iter=inner, ifs=[])]):
            return _length(inner, variables)
        case ast.Call(func=ast.Name(id="range"), args=args):
            return _length_of_range(args)
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _SAME_LENGTH:
            return _length(inner, variables)
        case ast.Call(func=ast.Name(id="zip"), args=args) if args:
            return min(_length(inner, variables) for inner in args)
        case _:
            return 0


def _dotted_name(node: ast.expr) -> str:
    """Return the name in an expression such as ``mail.send``; empty for any other expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return f"{name}.{attribute}"
        case _:
            return ""


def _length_of_range(args: list[ast.expr]) -> int:
    try:
        return len(range(*(ast.literal_eval(arg) for arg in args)))
    except (ValueError, TypeError, OverflowError):
        return 0


def _times(counts: Counter[str], times: int) -> Counter[str]:
    """Multiply each count; leave out counts of 0."""
    return Counter({name: count * times for name, count in counts.items() if count * times})
