"""Programs and examples of documentation pages as files that a type checker can read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from repo.pages import blocks_of
from support.workspace import ROOT

_FRAMEWORKS: Final = ROOT / "examples/frameworks"
PROGRAMS: Final = (
    *sorted((ROOT / "tests/repo").glob("typed_*.py")),
    *(_FRAMEWORKS / f"{name}.py" for name in ("orders", "programs", "rq_jobs")),
)
"""Programs of users and authors, which need no package but delf's: pyright and mypy accept them."""
_CONTINUES: Final = "# continues the block above"
_AWAITS: Final = re.compile(r"allowed (?:only within|outside of) async function")
_LAX: Final = (
    "reportMissingParameterType",
    "reportMissingTypeArgument",
    "reportUnknownArgumentType",
    "reportUnknownLambdaType",
    "reportUnknownMemberType",
    "reportUnknownParameterType",
    "reportUnknownVariableType",
)


def write_examples(pages: Iterable[Path], folder: Path) -> Mapping[str, str]:
    """Write the Python examples of pages, a folder for each page.

    Args:
        pages: The Markdown files.
        folder: An empty folder.

    Returns:
        The pages by the names of their folders.
    """
    named: dict[str, str] = {}
    for page in pages:
        name = str(page.relative_to(ROOT))
        place = folder / re.sub(r"\W", "_", name)
        programs: list[tuple[int, str]] = []
        files: dict[str, str] = {}
        for block in blocks_of(page.read_text(encoding="utf-8")):
            file = block.file
            if file is not None and file.endswith(".py"):
                files[file] = files.get(file, "") + block.code
            elif file is None and block.language == "python" and block.is_run:
                if programs and block.code.startswith(_CONTINUES):
                    line, before = programs.pop()
                    programs.append((line, before + block.code))
                else:
                    programs.append((block.line, block.code))
        files |= {f"line_{line}.py": code for line, code in programs}
        for file, code in files.items():
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_text(code, encoding="utf-8")
        if files:
            named[place.name] = name
    return named


def complaints(folder: Path, roots: Iterable[str]) -> list[str]:
    """Return what pyright says about the files of a folder, in one strict run.

    Args:
        folder: The folder, in which each further folder has typed programs.
        roots: The names of folders that are pages: a program of its own each, whose functions may
            leave out their annotations, and which may await at the top.
    """
    lax = dict.fromkeys(_LAX, False)
    environments = [{"root": name, "extraPaths": [f"{name}/src", name], **lax} for name in roots]
    settings: dict[str, Any] = {
        "typeCheckingMode": "strict",
        "executionEnvironments": environments,
        "reportMissingModuleSource": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "-p", str(folder), "--outputjson"]
    command += ["--pythonpath", sys.executable]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    found = json.loads(ran.stdout)["generalDiagnostics"]
    return [
        f"{Path(one['file']).relative_to(folder)}:{one['range']['start']['line'] + 1}: "
        f"{one['message']} ({one.get('rule')})"
        for one in found
        if one["severity"] == "error" and not _AWAITS.search(one["message"])
    ]
