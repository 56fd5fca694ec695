"""Programs that only read their arguments, so that rules may use wildcards for these arguments.

Other programs may run an argument, write to it or send it somewhere; rules must name such arguments
or use ``**``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from delf_shell.parse import Words

# A function with the arguments and result of :func:`wildcards_are_safe` for one program.
_WildcardCheck = Callable[[Words, Collection[int]], bool]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GIT_ALLOWED: Final = _words(
    "add annotate blame cat-file check-attr check-ignore cherry commit count-objects describe diff "
    "diff-files diff-index diff-tree for-each-ref fsck grep log ls-files ls-tree merge-base "
    "name-rev range-diff rev-list rev-parse shortlog show show-branch show-ref status var "
    "verify-commit verify-tag whatchanged"
)
# The git commands that change the repository.
#
# A wildcard may match their arguments, but not the command itself.
_GIT_CHANGES: Final = frozenset({"add", "commit"})
_GIT_OPTIONS_WITH_VALUE: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})
_NEVER_MATCHES: Final = re.compile(r"(?!)")
# The programs that only read files, each with the options that do more.
#
# The options write files, run programs or read file names from a file.
_UNSAFE_OPTIONS_OF_READING_PROGRAMS: Final[dict[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        _words(
            "basename cat cmp cut diff dirname echo grep head ls nl od paste pwd stat tail tr uniq"
        ),
        _NEVER_MATCHES,
    ),
    # Short options may be combined, and long ones abbreviated.
    "sort": re.compile(r"-[^-]*[oT]|--(?:o|co|t|fil)"),
    "wc": re.compile(r"--f"),
    "find": re.compile(r"-(?:delete|exec|ok|fprint|fls|files0)"),
    "git": re.compile(r"-[^-]*O|--(?:ou|op|ext|exec|te|lo|git-dir|work-tree|config-env|namespace)"),
}
_READING_PROGRAMS: Final = frozenset(_UNSAFE_OPTIONS_OF_READING_PROGRAMS)


def wildcards_are_safe(command: Words, wildcard_indexes: Collection[int]) -> bool:
    """Return True if the words that the wildcards of a rule matched can only be files to read.

    Args:
        command: All words of the command, starting with the program.
        wildcard_indexes: The positions of the words that wildcards matched.
    """
    if not wildcard_indexes:  # the rule names all words itself
        return True
    program = command[0]
    check = _WILDCARD_CHECKS.get(program)
    if check is not None:
        return check(command, wildcard_indexes)
    return program in _READING_PROGRAMS


def argument_indexes(command: Words) -> list[int]:
    """Return the positions of the words after the program that are no options.

    The word ``-`` is no option, nor is any word after ``--``.
    """
    indexes: list[int] = []
    are_options_over = False
    for index, word in enumerate(command[1:], start=1):
        if are_options_over or word == "-" or not word.startswith("-"):
            indexes.append(index)
        elif word == "--":
            are_options_over = True
    return indexes


def options_are_safe(command: Words, options: Sequence[str]) -> bool:
    """Return True if no option lets a program do more than read files, as ``find -delete`` does.

    Args:
        command: All words of the command, starting with the program.
        options: The words of the command that begin with ``-``.
    """
    if not options:
        return True
    unsafe_options = _UNSAFE_OPTIONS_OF_READING_PROGRAMS.get(command[0])
    if unsafe_options is None:  # an unknown program
        return False
    return not any(map(unsafe_options.match, options))


def _git_wildcards_are_safe(command: Words, wildcard_indexes: Collection[int]) -> bool:
    """Return True if a git command is safe, given which words the wildcards of a rule matched.

    The rule ``git *`` allows ``git log``, but not ``git commit``, which a rule has to name.
    """
    subcommand_index = 1
    # Skip git's own options, as in ``git -C folder log``.
    while subcommand_index < len(command) and command[subcommand_index].startswith("-"):
        subcommand_index += 2 if command[subcommand_index] in _GIT_OPTIONS_WITH_VALUE else 1
    subcommand = command[subcommand_index] if subcommand_index < len(command) else ""
    has_wildcard_in_options = any(index < subcommand_index for index in wildcard_indexes)
    # An argument such as ``ext::sh`` names a transport, for which git runs a program.
    may_name_transport = any("::" in command[index] for index in wildcard_indexes)
    if has_wildcard_in_options or may_name_transport:
        return False
    is_matched_by_wildcard = subcommand_index in wildcard_indexes
    if is_matched_by_wildcard and subcommand in _GIT_CHANGES:
        return False
    return subcommand in _GIT_ALLOWED


def _uniq_wildcards_are_safe(command: Words, wildcard_indexes: Collection[int]) -> bool:
    """Return True unless a wildcard matched the second argument, which names the output file."""
    output_indexes = argument_indexes(command)[1:]
    return set(output_indexes).isdisjoint(wildcard_indexes)


_WILDCARD_CHECKS: Final[dict[str, _WildcardCheck]] = {
    "git": _git_wildcards_are_safe,
    "uniq": _uniq_wildcards_are_safe,
}
