"""Scripts as models write them, and what they mean: read from ``as_written/``, run by an agent.

Each begins with ``=== NAME``; after ``---`` stands what it prints, ``! CALL`` for what it changes,
``? WORDS`` for an error that says these, ``file: NAME`` for what it hands over, ``sorted`` where
the order of lines is not fixed, ``monty: error`` where Monty may refuse it, and ``monty: other``
where it does what is as good.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from delf import Agent
from delf.testing import ScriptedModel, TestHost
from support import office

FOLDER = Path(__file__).parent / "as_written"


@dataclass
class Written:
    """A script and what it means."""

    name: str
    code: str
    prints: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    is_sorted: bool = False
    not_in_monty: bool = False
    other_in_monty: bool = False


def written(kind: str) -> list[Written]:
    """The scripts of a kind."""
    found = []
    for part in (FOLDER / f"{kind}.txt").read_text("utf-8").split("=== ")[1:]:
        head, _, message = part.partition("\n---\n")
        name, _, code = head.partition("\n")
        script = Written(name, code)
        for line in message.splitlines():
            match line.split(" ", 1):
                case ["!", change]:
                    script.changes.append(change)
                case ["?", words]:
                    script.says.append(words)
                case ["file:", file]:
                    script.files.append(file)
                case ["sorted"]:
                    script.is_sorted = True
                case ["monty:", "error"]:
                    script.not_in_monty = True
                case ["monty:", "other"]:
                    script.other_in_monty = True
                case ["#", _]:
                    pass
                case _:
                    script.prints.append(line)
        found.append(script)
    return found


def kinds() -> list[str]:
    """The kinds of scripts."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def wrong_ones(scripts: list[Written], sandbox: str, folder: Path) -> dict[str, str]:
    """The lines that did not do as they mean, with their effects."""
    host, model = TestHost.discover(), ScriptedModel(default="ok")
    host.provide(model.spec, model.factory)
    options: dict[str, Any] = {"prefilter_mode": "off", "allow_unpriced": True, "journal": "none"}
    with Agent(
        tools=office.tools(),
        llm="scripted",
        host=host,
        sandbox=sandbox,
        retry_count=0,
        timeout=20,
        output_dir=str(folder),
        **options,
    ) as agent:
        found = {s.name: _problem(s, agent, model, sandbox) for s in scripts}
    return {name: problem for name, problem in found.items() if problem}


def _problem(script: Written, agent: Agent, model: ScriptedModel, sandbox: str) -> str:
    model.replies.clear()
    model.writes(script.code)
    office.CHANGES.clear()
    response = agent.run("do it")
    message, changes = response.error or "", list(office.CHANGES)
    if sandbox == "monty" and script.other_in_monty:
        return ""
    if not response.status:
        if script.says:
            missing = [words for words in script.says if words not in message]
            if changes != script.changes:
                return f"changed {changes}"
            return f"{missing} is not in {message!r}" if missing else ""
        return "" if sandbox == "monty" and script.not_in_monty else f"failed: {message}"
    printed = response.text.splitlines()
    if script.is_sorted:
        printed, script.prints = sorted(printed), sorted(script.prints)
    if script.says:  # what a tool refused at last is answered in its words
        message = printed[-1] if " was refused: " in printed[-1] else ""
        is_emitted = all(words.removeprefix("ToolException: ") in message for words in script.says)
        return "" if is_emitted and changes == script.changes else f"printed {printed}, {changes}"
    if printed != script.prints:
        return f"printed {printed}"
    if changes != script.changes:
        return f"changed {changes}"
    missing_files = [file for file in script.files if file not in response.files]
    return f"did not hand over {missing_files}" if missing_files else ""
