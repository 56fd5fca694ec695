"""Reading the statements of scripts: what they assign, and what decides whether they run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from delf_engine.origins.blocks import Blocks
from delf_engine.origins.changes import Changes
from delf_engine.origins.expressions import ExpressionReader
from delf_engine.origins.sources import Source, Sources, without_results
from delf_engine.origins.syntax import names_in
from delf_engine.origins.variables import Variables

_Branching = ast.stmt | ast.Lambda


class StatementReader:
    """Reads the statements of scripts, and records what they assign and change.

    The sources of a statement are those of all values that the statement reads.

    Args:
        expressions: Reads the expressions in the statements.
        variables: The variables, to which the reader adds sources.
        blocks: The blocks around the statement.
        changes: Records the objects that the statements change.
    """

    def __init__(
        self,
        expressions: ExpressionReader,
        variables: Variables,
        blocks: Blocks,
        changes: Changes,
    ) -> None:
        self._expressions = expressions
        self._variables = variables
        self._blocks = blocks
        self._changes = changes

    def read(self, node: ast.AST) -> Sources:
        """Return the sources that a node reads, and record what the node assigns and changes."""
        match node:
            case ast.expr():
                return self._expressions.read(node)
            case ast.stmt():
                return self._read_statement(node)
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                return self._expressions.assign([target], value)
            case ast.ExceptHandler():
                return self._read_handler(node)
            case _:
                return self._read_parts(node)

    def _read_statement(self, node: ast.stmt) -> Sources:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda() as function):
                return self._read_named_lambda(name, function)
            case ast.Assign(targets=targets, value=value):
                return self._expressions.assign(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._expressions.read(node.annotation)
                return self._expressions.assign([target], value)
            case ast.AugAssign(target=target, value=value):
                sources = self._read_parts(node)
                self._changes.record_change(target, sources, value)
                return sources
            case ast.Delete(targets=targets):
                return self._read_delete(targets)
            case ast.Return():
                return self._expressions.read_returned(node)
            case ast.Break() | ast.Continue():
                self._blocks.record_jump()
                return frozenset()
            case ast.If(test=test) | ast.While(test=test):
                self._blocks.add_conditions(node, self._expressions.read_test(test))
                with self._blocks.visiting(node):
                    return self._read_parts(node)
            case ast.For() | ast.AsyncFor():
                return self._read_loop(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._read_definition(node)
            case ast.Match():
                return self._read_match(node)
            case ast.Try() | ast.TryStar() | ast.With() | ast.AsyncWith():
                # An exception in one part decides whether another part runs.
                return self._read_branching(node, ast.iter_child_nodes(node))
            case _:
                return self._read_parts(node)

    def _read_parts(self, node: ast.AST) -> Sources:
        # Not by _read_all(), because each call counts for the depth of the recursion.
        return set[Source]().union(*map(self.read, ast.iter_child_nodes(node)))

    def _read_all(self, nodes: Iterable[ast.AST]) -> Sources:
        return set[Source]().union(*map(self.read, nodes))

    def _read_branching(
        self, node: _Branching, parts: Iterable[ast.AST], tests: Iterable[ast.expr] = ()
    ) -> Sources:
        """Return the sources of a statement or lambda that may run only some of its parts.

        Args:
            node: The statement or lambda.
            parts: The parts, such as the cases of a ``match``.
            tests: The expressions that only decide which of ``parts`` run, such as the guards.
        """
        with self._blocks.visiting(node):
            test_sources = set[Source]().union(*map(self._expressions.read_test, tests))
            sources = test_sources | self._read_all(parts)
            # In a ``try``, what follows ``ship(row["id"])`` does not run if ``row`` has no ``id``.
            # So the named field ``id`` counts as a condition, too, but not the rest of ``row``.
            self._blocks.add_conditions(node, test_sources, without_results(sources))
            return sources

    def _read_named_lambda(self, name: str, function: ast.Lambda) -> Sources:
        """Read an assignment such as ``f = lambda: rows``, like the definition of a function."""
        self._expressions.bind_defaults(function)
        # ``f().append(x)`` changes the object of ``rows``.
        self._changes.record_contents(name, function)
        sources = self._read_branching(function, ast.iter_child_nodes(function))
        self._blocks.record_body(function, sources)
        return sources

    def _read_definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Sources:
        """Read the definition of a function; return the sources of all that the function reads."""
        self._expressions.read_all(node.decorator_list)
        if node.returns is not None:
            self._expressions.read(node.returns)
        self._expressions.bind_defaults(node)
        # After ``def f(): return rows``, ``f().append(x)`` changes the object of ``rows``.
        self._variables.add_contained(node.name, names_in(node))
        # assign() adds the sources of the conditions around the definition: in
        # ``if paid: def f(): ...``, ``paid`` decides which function the name ``f`` stands for.
        self._variables.assign(node.name, sources=frozenset())
        sources = self._read_branching(node, node.body)
        self._blocks.record_body(node, sources)
        return sources

    def _read_delete(self, targets: Sequence[ast.expr]) -> Sources:
        sources = self._expressions.read_all(targets)
        for target in targets:
            self._changes.record_change(target, sources)
        return sources

    def _read_loop(self, node: ast.For | ast.AsyncFor) -> Sources:
        # Only the number of rows decides how often the loop runs, not the fields of a row.
        length_sources = without_results(self._expressions.read(node.iter))
        self._blocks.add_conditions(node, length_sources)
        with self._blocks.visiting(node):
            # The loop reads an iterator to its end, or to a ``break``, whose conditions are those
            # of the whole loop.
            self._changes.record_reading(node.iter)
            self._expressions.bind_rows(node.target, node.iter)
            return self._read_parts(node)

    def _read_match(self, node: ast.Match) -> Sources:
        """Return the sources of a ``match`` statement, whose subject decides which case runs."""
        # A pattern such as ``{"paid": True}`` may test any field, unlike a test such as ``if row``.
        self._blocks.add_conditions(node, self._expressions.read(node.subject))
        guards = [case.guard for case in node.cases if case.guard is not None]
        return self._read_branching(node, [node.subject, *node.cases], tests=guards)

    def _read_handler(self, node: ast.ExceptHandler) -> Sources:
        """Return the sources of the statements in an ``except``."""
        # The value of the expression after ``except`` is a class, so its sources are ignored. The
        # expression is read because it may change an object, as in ``except kinds.pop():``.
        if node.type is not None:
            self._expressions.read(node.type)
        return self._read_all(node.body)
