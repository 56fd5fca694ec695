"""A worker's instructions as a Jinja template: values, conditions, and included files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from delf.errors import DelfError

FILE: Final = "file"
"""The template function that includes a text file of the worker's folder."""
_VALUES_ONLY: Final = (nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name)


class InstructionsError(ValueError):
    """The instructions are not a valid template."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Instructions:
    """A parsed template of a worker's instructions.

    Args:
        text: The template.
        values_only: Whether only ``{{ input }}`` is allowed, without conditions or calls.

    Raises:
        InstructionsError: If the template is invalid.
    """

    def __init__(self, text: str, *, values_only: bool = False) -> None:
        # A person wrote the template; the values come from tasks, and may be hostile.
        self._environment = ImmutableSandboxedEnvironment(
            undefined=StrictUndefined, keep_trailing_newline=True
        )
        try:
            self._tree = self._environment.parse(text)
            self._environment.compile(self._tree, raw=True)  # finds unknown filters and tests
        except TemplateSyntaxError as error:
            raise InstructionsError(error.message or "invalid template", error.lineno) from None
        except RecursionError:
            raise InstructionsError("it is nested too deeply", 1) from None
        if values_only:
            for node in self._tree.find_all(nodes.Node):
                if not isinstance(node, _VALUES_ONLY):
                    raise InstructionsError(
                        "a generated worker's instructions have {{ input }} only", node.lineno
                    )

    def names(self) -> Iterator[tuple[str, int]]:
        """Yield the inputs that the template uses, each with its line number."""
        free = find_undeclared_variables(self._tree) - {FILE, *self._environment.globals}
        for node in self._tree.find_all(nodes.Name):
            if node.name in free and node.ctx == "load":
                yield node.name, node.lineno

    def filled(self, values: Mapping[str, Any], read: Callable[[str], str]) -> str:
        """Return the instructions after replacing placeholders by the values of inputs.

        Raises:
            InstructionsError: If rendering fails, for example because an attribute is missing.
        """
        try:
            return self._environment.from_string(self._tree, {FILE: read}).render(values)
        except DelfError:  # of ``read``
            raise
        except Exception as error:  # an expression of the template may raise any exception
            raise InstructionsError(str(error) or type(error).__name__, 1) from None
