"""``Shell``: commands of this machine, as far as rules allow them."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, Final

from delf import CallContext, Connection, action
from delf.errors import ToolRefusedError
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
from delf_shell.parse import Pipeline, format_pipelines, parse
from delf_shell.rules import read_rules
from delf_shell.run import Runner, ShellResult
from delf_shell.settings import ShellSettings

# Programs that ask or page would wait for a terminal that is not there.
_QUIET: Final = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


class Shell(Connection[ShellSettings]):
    """Commands by rules, each part of a command judged by its words, run without a shell.

    Args:
        rules: Patterns, of which the first match decides: ``{"pattern": "git status",
            "approval_required": False}``.
        default: The treatment of commands without a matching rule; blocked when omitted.
        folder: The working directory.
    """

    context_trust = "own"

    def __init__(self, **options: Any) -> None:
        # The rules decide about approvals; `confirm` can only add to them.
        if options.get("confirm") is None:
            options["confirm"] = False
        super().__init__(**options)
        self._rules = read_rules(self.settings.rules, self.name)
        self._folder = Path(self.settings.folder).resolve()

    async def context(self, task: str) -> str | None:
        """Return the commands that may run, for the prompt."""
        rules = ", ".join(rule.pattern for rule in self.settings.rules) or "none"
        others = "asked about" if self.settings.default else "blocked"
        return (
            f"{self.name}: commands by these patterns: {rules}; others are {others}. No shell: "
            "words, quotes, | && || ; only, no variables, wildcards or redirections."
        )

    def check(self, call: ProposedCall) -> Verdict:
        """Implements :class:`delf.protocols.connection.SupportsCheck`."""
        command = str(call.arguments["command"])
        cwd = str(call.arguments.get("cwd", "."))
        where = "" if cwd == "." else f"in {cwd}\n"
        try:
            pipelines = parse(command)
        except ToolRefusedError as error:
            return Refused(message=error.message)
        return self._check_parts(pipelines, f"{where}{format_pipelines(pipelines)}")

    def _check_parts(self, pipelines: tuple[Pipeline, ...], preview: str) -> Verdict:
        """Return the strictest verdict of the rules on any part."""
        reasons: list[str] = []
        for words in (words for pipeline in pipelines for words in pipeline.commands):
            rule = next((rule for rule in self._rules if rule.fits(words)), None)
            if rule is None and self.settings.default is None:
                return Refused(message=self._blocked_message(words))
            asks = rule.asks(words) if rule is not None else self._asks_by_default
            if asks:
                reasons.append(words[0])
        if not reasons:
            return Allowed(preview=preview)
        return NeedsApproval(reason=f"{', '.join(reasons)}: not pre-approved", preview=preview)

    @property
    def _asks_by_default(self) -> bool:
        return self.settings.default is None or self.settings.default.approval_required

    def _blocked_message(self, words: tuple[str, ...]) -> str:
        patterns = ", ".join(repr(rule.pattern) for rule in self.settings.rules) or "none"
        blocked = f"blocked: {shlex.join(words)!r} is of no rule. Rules: {patterns}"
        if any(rule.words[0] == words[0] and rule.words[-1] == "*" for rule in self._rules):
            blocked += (
                ". A * stands for words of programs that are known to only read them, and not for "
                "options; a rule names others, or ends with **"
            )
        return blocked

    @action(effect="irreversible", sinks=["command", "cwd"])
    async def run(
        self,
        command: str,
        cwd: str = ".",
        timeout: float | None = None,
        *,
        context: CallContext | None = None,
    ) -> ShellResult:
        """Run a command and wait for its end.

        Args:
            command: Words, quotes, ``|``, ``&&``, ``||`` and ``;``.
            cwd: The folder, from the connection's own.
            timeout: Seconds after which it is killed; never more than the connection's.
            context: The task, which sees the output as it comes.
        """
        seconds = min(timeout or self.settings.timeout, self.settings.timeout)
        environment = {
            name: value
            for name in self.settings.environment
            if (value := os.environ.get(name)) is not None
        }
        runner = Runner(
            folder=self._beneath(cwd),
            environment={**_QUIET, **environment},
            timeout=seconds,
            max_output_bytes=self.settings.max_output_bytes,
            **({} if context is None else {"tell": context.say}),
        )
        return await runner.run(parse(command))

    def _beneath(self, cwd: str) -> Path:
        folder = (self._folder / cwd).resolve()
        if not folder.is_relative_to(self._folder) or not folder.is_dir():
            raise ToolRefusedError(
                f"cannot run in {cwd!r}: it is not a folder under the one of {self.name}"
            )
        return folder
