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
from delf_shell.programs import (
    argument_indexes,
    options_are_safe,
    wildcards_are_safe,
)
from delf_shell.settings import RuleSettings

_NUMBER = re.compile(r"[\d.,:+]*")
# Matches a word with a path that may lead out of the folder: ``/etc``, ``~/.ssh``, ``a/../..`` or a
# URL, also as a value, as in ``if=/etc/passwd``.
_OUTSIDE_PATH = re.compile(r"(?:^|[=:@,])[/~\\]|(?:^|[/=:@,])\.\.(?:/|$)|://")


@dataclass(frozen=True, slots=True)
class Rule:
    """A parsed rule about commands.

    Args:
        words: The words of the pattern.
        ask: Whether every matching command needs approval.
        asks_unless_reading: Whether a matching command needs approval unless it only reads files of
            the folder. In such a command, each word that ``**`` matches is a file that the program
            reads, or an option with which the program only reads.
    """

    words: tuple[str, ...]
    ask: bool
    asks_unless_reading: bool = False

    def requires_approval(self, command: Words) -> bool:
        """Return True if a matching command needs approval."""
        if self.ask:
            return True
        if not self.asks_unless_reading:
            return False
        # A rule with asks_unless_reading ends with ``**``, as in ``grep **``. Check the words that
        # ``**`` matches.
        first_matched = len(self.words) - 1
        matched_words = command[first_matched:]
        if any(map(_OUTSIDE_PATH.search, matched_words)):  # ``../secret``
            return True
        # Some programs, such as find, take words after ``--`` as options, too.
        options = [word for word in matched_words if word.startswith("-")]
        short_options = [word for word in options if not word.startswith("--")]
        if any("/" in word for word in short_options):  # ``-f/etc/passwd``
            return True
        matched_indexes = [index for index in argument_indexes(command) if index >= first_matched]
        are_arguments_safe = wildcards_are_safe(command, matched_indexes)
        return not are_arguments_safe or not options_are_safe(command, options)

    def matches(self, command: Words) -> bool:
        """Return True if a command matches the pattern.

        A wildcard, except ``**`` at the end, matches only the names of files that the program
        reads.
        """
        # ``grep *`` allows further words that are names of files to read, ``grep **`` any words.
        allows_any_word = len(self.words) > 1 and self.words[-1] == "**"
        allows_files = len(self.words) > 1 and self.words[-1] == "*"
        allows_further_words = allows_any_word or allows_files
        pattern_words = self.words[:-1] if allows_further_words else self.words
        further_words = command[len(pattern_words) :]
        has_missing_words = len(command) < len(pattern_words)
        has_surplus_words = bool(further_words) and not allows_further_words
        if has_missing_words or has_surplus_words:
            return False
        if not all(map(_matches_word, pattern_words, command)):
            return False
        if allows_files and not all(map(_stays_in_folder, further_words)):
            return False
        # A matching word that differs from the word of the pattern was matched by a wildcard.
        wildcard_indexes = [
            index for index, word in enumerate(pattern_words) if word != command[index]
        ]
        if allows_files:
            wildcard_indexes += range(len(pattern_words), len(command))
        return wildcards_are_safe(command, wildcard_indexes)


def _matches_word(pattern: str, word: str) -> bool:
    """Return True if a word of a command matches a word of a rule, which may have wildcards."""
    if pattern == word:
        return True
    if not any(sign in pattern for sign in "*?"):
        return False
    prefix = re.split(r"[*?]", pattern, maxsplit=1)[0]
    matched_part = word[len(prefix) :]
    if not word.startswith(prefix) or not _stays_in_folder(matched_part):
        return False
    # A wildcard may stand for the value of an option, but not for another option.
    if word.startswith("-") and not _is_option_value(matched_part, text_before=prefix):
        return False
    # Brackets are not wildcards here.
    return fnmatch.fnmatchcase(word, pattern.replace("[", "[[]"))


def _is_option_value(matched_part: str, *, text_before: str) -> bool:
    """Return True if a wildcard matched only the value of an option.

    The value of a long option follows ``=``, as in ``--file=a``. The value of a short option, as in
    ``-n5``, may only be a number, because letters would be further options.

    Args:
        matched_part: The end of the option, which a wildcard matched.
        text_before: The beginning of the option, which the pattern names.
    """
    if "=" in text_before:
        return True
    is_short_option = len(text_before) > 1 and not text_before.startswith("--")
    return is_short_option and _NUMBER.fullmatch(matched_part) is not None


def _stays_in_folder(word: str) -> bool:
    """Return True if a word is no option, and no path that leads out of the folder."""
    return not word.startswith("-") and not _OUTSIDE_PATH.search(word)


def parse_rules(rules: Sequence[RuleSettings], name: str) -> tuple[Rule, ...]:
    """Parse the rules in the settings.

    Args:
        rules: The rules from the settings.
        name: The name of the connection for error messages.

    Raises:
        ConnectionConfigurationError: If a pattern cannot be parsed as words that start with a
            program.
    """
    parsed: list[Rule] = []
    for rule in rules:
        try:
            words = tuple(shlex.split(rule.pattern))
        except ValueError as error:
            raise ConnectionConfigurationError(f"{name}: {rule.pattern!r}: {error}") from None
        if not words or any(sign in words[0] for sign in "*?/"):
            raise ConnectionConfigurationError(
                f"{name}: the pattern {rule.pattern!r} does not begin with the name of a program",
                hint='write a pattern such as "git log *"; the setting "default" decides about '
                "commands without a rule",
            )
        # A rule with match = "prefix" or match = "reading" allows further words.
        if rule.match != "words" and words[-1] != "**":
            words = (*words, "**")
        asks_unless_reading = rule.match == "reading"
        parsed.append(Rule(words, rule.approval_required, asks_unless_reading))
    return tuple(parsed)
