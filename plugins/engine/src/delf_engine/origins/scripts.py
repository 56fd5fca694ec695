"""Sources of the values of a script's calls, read from the script's text.

The analysis follows values from constants and from results of calls to the arguments of calls. It
ignores the order of statements: a variable has the sources of all values that the scripts give it.
The values that decide whether or how often a statement runs are sources of all that the statement
assigns. For example, the sources of ``amount`` in this script are the action ``find`` and the
fields ``price`` and ``paid``::

    total = 0
    for row in find():
        if not row.paid:
            total += row.price
    pay(amount=total)

Each module has one part of the analysis, and knows only the modules above it:

- ``library``: Python's own functions, methods and modules.
- ``blocks``: the conditions around a statement, such as the ``if`` and the ``for`` above.
- ``variables``: the sources of each variable, and the variables that may share an object.
- ``names``: what each name in a script stands for, such as an action or a variable.
- ``changes``: the objects that an expression creates, changes or shares.
- ``action_calls``: the calls of actions, with the sources of their arguments.
- ``expressions`` and ``statements``: the readers of the syntax tree, which use all of these.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from delf_engine.origins.action_calls import ActionCalls
from delf_engine.origins.blocks import Blocks
from delf_engine.origins.changes import Changes
from delf_engine.origins.expressions import ExpressionReader
from delf_engine.origins.names import Names
from delf_engine.origins.sources import Sources, with_enclosed_as_whole_results
from delf_engine.origins.statements import StatementReader
from delf_engine.origins.variables import Variables

# The maximum number of passes over the scripts.
#
# Each pass follows values through at least one more assignment.
_MAX_PASSES: Final = 30


class Scripts:
    """Data flow analysis of a task's scripts: which action results flow into which arguments.

    The author of a script is the model, or the user who saved a routine. A script is analysed only
    if its author had read no untrusted data before writing it. The scripts share their variables.

    Args:
        parameters_of: Returns the parameter names of an action; None if there is no such action.
        untrusted_variables: The names of variables that hold untrusted data before the first
            script.
    """

    def __init__(
        self,
        parameters_of: Callable[[str], Sequence[str] | None],
        untrusted_variables: Iterable[str] = (),
    ) -> None:
        # All scripts so far; each pass of the analysis reads all of them.
        self._trees: list[ast.Module] = []
        # The calls of the last script, once all scripts are read.
        self._action_calls = ActionCalls()
        self._blocks = Blocks()
        self._variables = Variables(self._blocks, untrusted_variables)
        self._names = Names(parameters_of, self._variables, self._blocks)
        changes = Changes(self._names, self._variables)
        self._expressions = ExpressionReader(
            self._names, self._variables, self._blocks, changes, self._action_calls
        )
        self._statements = StatementReader(
            self._expressions, self._variables, self._blocks, changes
        )

    def add(self, code: str) -> None:
        """Analyse the next script of the task, to find the sources of its calls' arguments."""
        try:
            tree = ast.parse(code)
            self._trees.append(tree)
            self._names.declare(tree)
            self._blocks.add_script(tree)
            is_complete = self._read_until_complete()
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            is_complete = False  # the script is no valid Python, or nested too deeply
        if not is_complete:
            self._action_calls.clear()  # sources() then returns None for all calls

    def _read_until_complete(self) -> bool:
        """Read all scripts until a pass finds no new source; return False if the passes run out."""
        size = self._size()
        for _ in range(_MAX_PASSES):
            # Earlier scripts are read again: the last script may change their variables' lists.
            for tree in self._trees:
                # Clear the calls before each script: sources() needs only those of the last script.
                self._action_calls.clear()
                self._statements.read(tree)
            earlier_size, size = size, self._size()
            if size == earlier_size:
                return True
        return False

    def _size(self) -> int:
        """Return the number of recorded facts.

        Reading the scripts again may add facts, but never removes a fact. If the number stays the
        same, the reading found nothing new.
        """
        return self._blocks.size + self._variables.size

    def sources(self, action: str, path: str, line: int | None) -> Sources | None:
        """Return the actions and fields whose values flow into an argument in the last script.

        Args:
            action: The called action.
            path: The path of a value in the arguments.
            line: The line of the call; if it is None, all calls of the action count.

        Returns:
            The sources. None if the script's text has no such call, or if the script may change
            variables in a way that its text does not show.
        """
        if self._names.may_hide_calls(action):
            return None
        return self._action_calls.sources(action, path, line)

    def sources_of_expression(self, node: ast.expr) -> Sources:
        """Return the actions and fields whose values flow into the value of an expression.

        The result is comparable with the result of :meth:`sources`: a result inside the value, as
        in ``{"id": find()}``, counts like the result itself.
        """
        # The expression may bind names, as ``sum(row.price for row in find())`` binds ``row``.
        self._names.declare(ast.Module(body=[ast.Expr(node)], type_ignores=[]))
        return with_enclosed_as_whole_results(self._expressions.read(node))
