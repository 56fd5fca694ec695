"""The calls of actions in a script, with the sources of their arguments."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

from delf_engine.origins.sources import (
    UNKNOWN,
    Source,
    Sources,
    with_enclosed_as_whole_results,
)
from delf_engine.origins.values import parameter_of


class ActionCalls:
    """The calls of actions in the script that is read at the moment."""

    def __init__(self) -> None:
        # By action and call: the sources of each argument. The parameter ``*`` stands for the
        # arguments of unknown parameters, as in ``save(**record)``.
        self._by_action: dict[str, dict[ast.Call, Mapping[str, Sources]]] = defaultdict(dict)

    def clear(self) -> None:
        """Forget all calls, so that no sources of their arguments are known."""
        self._by_action.clear()

    def record(self, action: str, call: ast.Call, arguments: Mapping[str, Sources]) -> None:
        """Record the sources of a call's arguments, by parameter."""
        self._by_action[action][call] = arguments

    def sources(self, action: str, path: str, line: int | None) -> Sources | None:
        """Return the sources of a value in the arguments of an action's calls.

        Args:
            action: The called action.
            path: The path of the value in the arguments.
            line: The line of the call; if it is None, all calls of the action count.

        Returns:
            The sources. None if there is no such call.
        """
        calls = self._by_action.get(action, {})
        arguments_of_calls = [
            arguments for call, arguments in calls.items() if line is None or _is_on(line, call)
        ]
        if not arguments_of_calls:
            return None
        parameter = parameter_of(path)
        passed: list[Sources] = []
        for arguments in arguments_of_calls:
            unpacked = arguments.get("*")  # ``**record`` may contain any argument
            sources = arguments.get(parameter, unpacked)
            if sources is not None:
                passed.append(sources)
        if not passed:  # no call has the argument
            return frozenset({UNKNOWN})
        return with_enclosed_as_whole_results(set[Source]().union(*passed))


def _is_on(line: int, call: ast.Call) -> bool:
    return call.lineno <= line <= (call.end_lineno or 0)
