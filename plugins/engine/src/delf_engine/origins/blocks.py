"""Blocks of scripts, and the sources of what decides whether a block runs."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from delf_engine.origins.sources import UNKNOWN, Source, Sources, without_results
from delf_engine.origins.syntax import Function, names_in


class Blocks:
    """The loops, branches and functions of a task's scripts, as nodes of the syntax tree.

    The conditions of a block are the values that decide whether or how often the block runs. Their
    sources count for each variable that the block assigns: after ``if paid: note = "x"``, the value
    of ``note`` reveals ``paid``.
    """

    def __init__(self) -> None:
        # The blocks around the node that is read at the moment, outermost first.
        self._enclosing: list[ast.AST] = []
        # The sources of the conditions of each block.
        self._condition_sources: dict[ast.AST, set[Source]] = defaultdict(set)
        # The sources of all that each function reads.
        self._sources_read: dict[Function, set[Source]] = defaultdict(set)
        # The sources of the values that each function returns or yields.
        self._returned_sources: dict[Function, set[Source]] = defaultdict(set)
        # The number of times that each name occurs in a block, and in all scripts.
        self._use_counts: dict[ast.AST, Counter[str]] = {}
        self._use_counts_of_scripts: Counter[str] = Counter()

    @property
    def size(self) -> int:
        """The number of recorded sources, which never shrinks."""
        recorded = (
            *self._condition_sources.values(),
            *self._sources_read.values(),
            *self._returned_sources.values(),
        )
        return sum(map(len, recorded))

    def add_script(self, tree: ast.Module) -> None:
        """Count the names of a script, before any part of the script is read."""
        self._use_counts_of_scripts.update(names_in(tree))

    @contextmanager
    def visiting(self, block: ast.AST) -> Generator[None]:
        """Mark a node as the innermost block while its parts are read."""
        if block not in self._use_counts:  # each pass over the scripts visits the block again
            self._use_counts[block] = _count_uses(block)
        self._enclosing.append(block)
        try:
            yield
        finally:
            self._enclosing.pop()

    def innermost_function(self) -> Function | None:
        """Return the function that contains the visited node; None outside of functions."""
        for block in reversed(self._enclosing):
            if isinstance(block, Function):
                return block
        return None

    def add_conditions(self, block: ast.AST, *sources: Sources) -> None:
        """Add sources of values that decide whether or how often the parts of a block run."""
        self._condition_sources[block].update(*sources)

    def conditions_of(self, block: ast.AST) -> Sources:
        """Return the sources of a block's own conditions, without those of the blocks around it."""
        return self._condition_sources[block]

    def conditions_revealed_by(self, variable: str) -> Iterator[Sources]:
        """Yield the sources of each enclosing condition that the value of a variable may reveal.

        After ``if paid: note = "x"``, the value of ``note`` reveals ``paid``. A variable that is
        used nowhere outside the ``if`` reveals nothing.
        """
        # A name that occurs nowhere stands for any variable, and reveals all conditions.
        use_count = self._use_counts_of_scripts[variable]
        for block in self._enclosing:
            is_used_only_inside = 0 < use_count <= self._use_counts[block][variable]
            if not is_used_only_inside:
                yield self._condition_sources[block]

    def _all_conditions(self) -> Iterator[Sources]:
        return (self._condition_sources[block] for block in self._enclosing)

    def record_jump(self, value_sources: Sources = frozenset()) -> None:
        """Record a statement that leaves a loop or function, such as ``return`` or ``continue``.

        After ``if row["paid"]: continue``, the rest of the loop runs only if ``paid`` is false. So
        the conditions around the jump also count for the loop.

        Args:
            value_sources: The actions and fields from which the returned value comes, if any.
        """
        # Whether ``return row`` runs depends on no field of ``row``.
        jump_sources = without_results(value_sources).union(*self._all_conditions())
        for block in self._enclosing:
            self.add_conditions(block, jump_sources)

    def record_return(self, value_sources: Sources) -> None:
        """Record that the innermost function returns or yields a value."""
        function = self.innermost_function()
        if function is not None:
            self._returned_sources[function].update(value_sources)
        self.record_jump(value_sources)

    def record_body(self, function: Function, sources_read: Sources) -> None:
        """Record the sources of all that a function reads."""
        self._sources_read[function].update(sources_read)

    def record_call(self, function: Function) -> None:
        """Add the conditions around a call to the conditions of the called function's body."""
        self.add_conditions(function, *self._all_conditions())

    def record_call_by_unknown(self, function: Function) -> None:
        """Record that others may call a function at any time, as ``f`` after ``call_later(f)``."""
        # The caller is unknown, and so are the sources of all that the function changes.
        self.add_conditions(function, {UNKNOWN})

    def sources_of_result(self, function: Function) -> Sources:
        """Return the sources of what a function of the scripts returns."""
        sources_read = self._sources_read[function]
        if isinstance(function, ast.Lambda):
            return sources_read  # the value of a lambda may come from all that the lambda reads
        # ``if row["paid"]: return 1`` reads only the field ``paid``, while ``return row`` returns
        # the whole row. So whole results count only if they are returned.
        return without_results(sources_read) | self._returned_sources[function]


def _count_uses(block: ast.AST) -> Counter[str]:
    """Count how often a loop, condition or function uses each name."""
    if isinstance(block, (ast.Try, ast.TryStar)):
        # The handlers count as outside: after ``try: text = "a"; ship(); text = "b"``, the text
        # ``"a"`` reveals to a handler that ``ship`` failed.
        return Counter(name for statement in block.body for name in names_in(statement))
    return Counter(names_in(block))
