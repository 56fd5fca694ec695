"""``AgentOptions``: the fields of ``AgentConfig`` as keywords, so that each is declared once.

``make generated`` writes the module again.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Final

from pydantic import BaseModel

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
{imports}


class AgentOptions(TypedDict, total=False):
    """Fields of :class:`~delf_engine.config.AgentConfig` as keywords; None stands for the default.

    ``docs/configuration.md`` explains each field. A model is given as a name or an ``LLMConfig``.
    """
'''


def options() -> str:
    """Return the module with ``AgentOptions``."""
    module = ast.parse(inspect.getsource(config))
    (declared,) = (
        each
        for each in module.body
        if isinstance(each, ast.ClassDef) and each.name == "AgentConfig"
    )
    fields = {
        str(ast.unparse(node.target)): node.annotation
        for node in declared.body
        if isinstance(node, ast.AnnAssign)
    }
    lines = [
        f"    {name}: {given(annotation)} | None"
        for name, annotation in fields.items()
        if name not in _OWN
    ]
    return "\n".join([_HEAD.format(imports=_imports(module, "\n".join(lines))), *lines, ""])


def _imports(module: ast.Module, text: str) -> str:
    """Write the imports of a module for the names that stand in a text."""
    names = set(re.findall(r"\w+", text))
    groups: dict[bool, list[str]] = {True: [], False: []}  # by whether they are of Python itself
    imports = [each for each in module.body if isinstance(each, ast.ImportFrom) and each.module]
    for each in sorted(imports, key=lambda each: str(each.module)):
        if used := sorted(names & {alias.name for alias in each.names}):
            is_python = str(each.module).partition(".")[0] in sys.stdlib_module_names
            groups[is_python].append(f"    from {each.module} import {', '.join(used)}")
    return "\n\n".join("\n".join(group) for group in groups.values())


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
    is_table = isinstance(of := getattr(config, text, None), type) and issubclass(of, BaseModel)
    return "Mapping[str, Any]" if is_table else text
