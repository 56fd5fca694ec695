"""Rules over the words of commands.

A pattern is a sequence of words. ``*`` and ``?`` in a word match characters of that word; ``*``
alone at the end matches any further words. Wildcards match only words that the program merely reads
(:mod:`delf_shell.programs`), never an option or a path that leads out of the folder. Otherwise a
harmless command could be turned into another one: ``git -c core.pager=…``, ``find -exec``, ``sed
'1e …'``, ``tar --checkpoint-action=…``, ``cat /etc/passwd``. In an option that a pattern names, a
wildcard matches its value. ``**`` at the end, or ``match="prefix"``, matches any further words.
With ``match="reading"`` a person is asked about further words that may do more than read files in
the folder.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from delf.errors import ConnectionConfigurationError
from delf_shell.parse import Words
from delf_shell.programs import may_cover, only_reads
from delf_shell.settings import RuleSettings

_NUMBER = re.compile(r"[\d.,:+]*")
_LEADS_OUT = re.compile(r"(?:^|[=:@,])[/~\\]|(?:^|[/=:@,])\.\.(?:/|$)|://")


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern in words.

    Args:
        words: The pattern.
        ask: Whether a person is asked.
        reading: Whether further words need approval if they may do more than read.
    """

    words: tuple[str, ...]
    ask: bool
    reading: bool = False

    def asks(self, command: Words) -> bool:
        """Return True if a matching command needs approval."""
        if self.ask or not self.reading:
            return self.ask
        further = range(len(self.words) - 1, len(command))
        plain = [place for place in further if not command[place].startswith("-")]
        options = [command[place] for place in further if command[place].startswith("-")]
        inside = not any(_LEADS_OUT.search(command[place]) for place in further) and not any(
            "/" in word for word in options if not word.startswith("--")
        )
        return not (inside and may_cover(command, plain) and only_reads(command, options))

    def fits(self, command: Words) -> bool:
        """Return True if a command matches the pattern."""
        wanted, covered = self.words, list[int]()
        if wanted[-1] in ("*", "**") and len(wanted) > 1:
            if len(command) < len(wanted) - 1:
                return False
            rest = range(len(wanted) - 1, len(command))
            if wanted[-1] == "*":
                if not all(_stays(command[place]) for place in rest):
                    return False
                covered += rest
            wanted = (*wanted[:-1], *(command[place] for place in rest))
        if len(wanted) != len(command) or not all(map(_is_of, wanted, command)):
            return False
        covered += (place for place, word in enumerate(wanted) if word != command[place])
        return may_cover(command, covered)


def _is_of(pattern: str, word: str) -> bool:
    if pattern == word:
        return True
    if not any(sign in pattern for sign in "*?"):
        return False
    fixed = re.split(r"[*?]", pattern, maxsplit=1)[0]
    rest = word[len(fixed) :]
    if not word.startswith(fixed) or not _stays(rest if fixed else word):
        return False
    if word.startswith("-") and not _is_value(fixed, rest):
        return False
    # Brackets are not wildcards here.
    return fnmatch.fnmatchcase(word, pattern.replace("[", "[[]"))


def _is_value(option: str, rest: str) -> bool:
    """Return True if an option is followed by its value and by no other option.

    A short option's value may only be a number: letters would be further options.
    """
    if option.startswith("--") or "=" in option:
        return "=" in option
    return len(option) > 1 and _NUMBER.fullmatch(rest) is not None


def _stays(word: str) -> bool:
    """Return True if a word is neither an option nor a path out of the folder."""
    return not word.startswith("-") and not _LEADS_OUT.search(word)


def read_rules(rules: Sequence[RuleSettings], name: str) -> tuple[Rule, ...]:
    """Parse rules into words.

    Args:
        rules: The rules of commands.
        name: The connection's name, for messages.

    Raises:
        ConnectionConfigurationError: For a pattern that is not a sequence of words.
    """
    read: list[Rule] = []
    for rule in rules:
        try:
            words = tuple(shlex.split(rule.pattern))
        except ValueError as error:
            raise ConnectionConfigurationError(f"{name}: {rule.pattern!r}: {error}") from None
        if not words or any(sign in words[0] for sign in "*?/"):
            raise ConnectionConfigurationError(
                f"{name}: the pattern {rule.pattern!r} does not begin with the name of a program",
                hint='a pattern is as "git log *"; default is for commands that no rule names',
            )
        if rule.match != "words" and words[-1] != "**":
            words = (*words, "**")
        read.append(Rule(words, rule.approval_required, reading=rule.match == "reading"))
    return tuple(read)
