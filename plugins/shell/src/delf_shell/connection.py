"""``Shell``: commands of this machine, as far as rules allow them."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from delf import CallContext, Connection, action
from delf.errors import ToolRefusedError
from delf.protocols.connection import Allowed, NeedsApproval, ProposedCall, Refused, Verdict
from delf_shell.parse import Pipeline, format_pipelines, parse
from delf_shell.rules import parse_rules
from delf_shell.run import Runner, ShellResult
from delf_shell.settings import ShellSettings

# Programs that ask or page would wait for a terminal that is not there.
_QUIET: Final = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


class Shell(Connection[ShellSettings]):
    """A connection that runs commands of this machine, as far as rules allow them.

    Each program in a command is checked by its words. Commands run without a shell.

    Args:
        rules: The rules, of which the first one with a matching pattern decides:
            ``{"pattern": "git status", "approval_required": False}``.
        default: The rule for commands that match no pattern; such commands are blocked when
            ``default`` is omitted.
        folder: The working folder of commands.
    """

    context_trust = "own"

    def __init__(self, **options: Any) -> None:
        # The rules decide which commands need approval. The user's option ``confirm`` can require
        # further approvals; if omitted, it requires none.
        if options.get("confirm") is None:
            options["confirm"] = False
        super().__init__(**options)
        self._rules = parse_rules(self.settings.rules, self.name)
        self._folder = Path(self.settings.folder).resolve()

    async def context(self, task: str) -> str | None:
        """Return a description of the allowed commands for the prompt."""
        patterns = self._patterns()
        others = "asked about" if self.settings.default else "blocked"
        # Without these words, models add options to any command, such as ``-5`` to ``git log``.
        meanings: list[str] = []
        has_single_star = any("*" in pattern.replace("**", "") for pattern in patterns)
        if has_single_star:
            meanings.append(" A * is no option (-x) and no path out of the folder.")
        if any(pattern.endswith("**") for pattern in patterns):
            meanings.append(" A ** is any words.")
        return (
            f"{self.name}: commands by these patterns: {', '.join(patterns) or 'none'}; others are "
            f"{others}.{''.join(meanings)} No shell: words, quotes, | && || ; only, no variables, "
            "wildcards or redirections."
        )

    def _patterns(self) -> list[str]:
        """Return the rules' patterns, with ``**`` at the end of those that allow further words."""
        patterns: list[str] = []
        for settings, rule in zip(self.settings.rules, self._rules, strict=True):
            allows_more = rule.words[-1] == "**" and not settings.pattern.endswith("**")
            patterns.append(f"{settings.pattern} **" if allows_more else settings.pattern)
        return patterns

    def check(self, call: ProposedCall) -> Verdict:
        """Return whether a command may run, needs approval or is refused.

        Implements :class:`delf.protocols.connection.SupportsCheck`.
        """
        command = str(call.arguments["command"])
        cwd = str(call.arguments.get("cwd", "."))
        folder_line = "" if cwd == "." else f"in {cwd}\n"
        try:
            pipelines = parse(command)
        except ToolRefusedError as error:
            return Refused.of(error)
        return self._check_programs(pipelines, f"{folder_line}{format_pipelines(pipelines)}")

    def _check_programs(self, pipelines: tuple[Pipeline, ...], preview: str) -> Verdict:
        """Return the strictest of the verdicts on the programs in a command."""
        programs_to_approve: list[str] = []
        commands = [words for pipeline in pipelines for words in pipeline.commands]
        for words in commands:
            rule = next((rule for rule in self._rules if rule.matches(words)), None)
            if rule is not None:
                requires_approval = rule.requires_approval(words)
            elif self.settings.default is not None:
                requires_approval = self.settings.default.approval_required
            else:
                return Refused(message=self._blocked_message(words))
            if requires_approval:
                programs_to_approve.append(words[0])
        if not programs_to_approve:
            return Allowed(preview=preview)
        reason = f"{', '.join(programs_to_approve)}: not pre-approved"
        return NeedsApproval(reason=reason, preview=preview)

    def _blocked_message(self, words: tuple[str, ...]) -> str:
        patterns = ", ".join(map(repr, self._patterns())) or "none"
        blocked = f"blocked: {shlex.join(words)!r} matches no rule. Rules: {patterns}"
        has_rule_with_star = any(
            rule.words[0] == words[0] and rule.words[-1] == "*" for rule in self._rules
        )
        if has_rule_with_star:
            blocked += (
                ". A * matches neither options nor arguments that the program might write to, run "
                "or send; a rule must name such words or end with **"
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
            command: Words, with quotes, ``|``, ``&&``, ``||`` and ``;``.
            cwd: The working folder, relative to the connection's folder.
            timeout: The seconds after which the command is killed; the timeout of the connection is
                the default and the maximum.
            context: The context of the call, through which people see the output while the command
                runs.
        """
        max_seconds = self.settings.timeout
        seconds = max_seconds if timeout is None else min(timeout, max_seconds)
        environment = {
            name: os.environ[name] for name in self.settings.environment if name in os.environ
        }
        runner = Runner(
            folder=self._resolve_folder(cwd),
            environment={**_QUIET, **environment},
            timeout=seconds,
            max_output_bytes=self.settings.max_output_bytes,
        )
        if context is not None:
            runner = replace(runner, tell=context.say)
        return await runner.run(parse(command))

    def _resolve_folder(self, cwd: str) -> Path:
        folder = (self._folder / cwd).resolve()
        if not folder.is_relative_to(self._folder) or not folder.is_dir():
            raise ToolRefusedError(
                f"cannot run in {cwd!r}: it is not a folder under the one of {self.name}"
            )
        return folder
