"""``AgentOptions``: the fields of ``AgentConfig`` as keywords, so that each is declared once.

``make generated`` writes the module again.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Final

from delf_engine import config

OPTIONS: Final = Path(config.__file__).with_name("options.py")
_OWN: Final = ("chat", "memory", "strategy")
"""Fields for which ``Agent`` has parameters of its own, as it takes objects there, too."""
_HEAD: Final = '''"""Keyword arguments with the fields of an agent's configuration, for type checkers.

Written by ``make generated``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from delf.llm import LLMConfig
    from delf.types import ApprovalMode, ConfirmMode, FlowMode, Isolation
    from delf_engine.memory_config import MemoryConfig


class AgentOptions(TypedDict, total=False):
    """Fields of :class:`~delf_engine.config.AgentConfig` as keywords; None stands for the default.

    ``docs/configuration.md`` explains each field. A model is given as a name or an ``LLMConfig``.
    """
'''


def options() -> str:
    """Return the module with ``AgentOptions``."""
    (declared,) = ast.parse(inspect.getsource(config.AgentConfig)).body
    assert isinstance(declared, ast.ClassDef)
    fields = {
        str(ast.unparse(node.target)): node.annotation
        for node in declared.body
        if isinstance(node, ast.AnnAssign)
    }
    lines = (
        f"    {name}: {given(annotation)} | None"
        for name, annotation in fields.items()
        if name not in _OWN
    )
    return "\n".join([_HEAD, *lines, ""])


def given(annotation: ast.expr) -> str:
    """Write the type of a field as callers may give it, before its validation; None is left out."""
    if isinstance(annotation, ast.BinOp):  # … | None
        return given(annotation.left)
    text = ast.unparse(annotation).replace("LocalPath", "str")
    if isinstance(annotation, ast.Subscript) and text.startswith("Annotated["):
        assert isinstance(annotation.slice, ast.Tuple)
        return given(annotation.slice.elts[0])
    outer, _, inner = text.removesuffix("]").partition("[")
    if outer == "tuple":
        return f"Sequence[{inner.removesuffix(', ...')}]"
    if outer == "Table":
        return f"Mapping[str, {'str' if inner == 'Text' else 'Any'}]"
    if text == "LLM":
        return "str | LLMConfig | Sequence[str | LLMConfig]"
    return f"{text} | Mapping[str, Any]" if text == "MemoryConfig" else text
