"""Wrappers of sandbox functions whose argument errors use the script's names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

RERUN = "rerun(context, remaining)"
ADD_FILE = "add_to_output_files(name, content)"


class FunctionWithUsage:
    """A function for scripts. A call with wrong arguments raises ``TypeError`` with the usage.

    Args:
        usage: The function's name and arguments for error messages, such as ``rerun(context,
            remaining)``.
        function: The implementation, whose parameters have the names that scripts use.
    """

    def __init__(self, usage: str, function: Callable[..., Any]) -> None:
        self._usage = usage
        self._function = function
        self._signature = inspect.signature(function)
        self.__name__ = self.__qualname__ = usage.partition("(")[0]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{error}; write {self._usage}") from None
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self._usage}>"
