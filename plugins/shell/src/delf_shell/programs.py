"""Programs that only read their arguments, so that rules may use wildcards for these arguments.

Other programs may run an argument, write to it or send it somewhere; rules must name such arguments
or use ``**``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from delf_shell.parse import Words

_MayCover = Callable[[Words, Collection[int]], bool]
"""A program's own version of :func:`may_cover`."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GIT_READS: Final = _words(
    "add annotate blame cat-file check-attr check-ignore cherry commit count-objects describe diff "
    "diff-files diff-index diff-tree for-each-ref fsck grep log ls-files ls-tree merge-base "
    "name-rev range-diff rev-list rev-parse shortlog show show-branch show-ref status var "
    "verify-commit verify-tag whatchanged"
)
_GIT_CHANGES: Final = frozenset({"add", "commit"})
"""git commands that change the repository: wildcards match their words, not the command itself."""
_GIT_VALUES: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})
_NONE_ACTS: Final = re.compile(r"(?!)")
_READERS: Final[dict[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        _words(
            "basename cat cmp cut diff dirname echo grep head ls nl od paste pwd stat tail tr uniq"
        ),
        _NONE_ACTS,
    ),
    # Short options may be combined, and long ones abbreviated.
    "sort": re.compile(r"-[^-]*[oT]|--(?:o|co|t|fil)"),
    "wc": re.compile(r"--f"),
    "find": re.compile(r"-(?:delete|exec|ok|fprint|fls|files0)"),
    "git": re.compile(r"-[^-]*O|--(?:ou|op|ext|exec|te|lo|git-dir|work-tree|config-env|namespace)"),
}
"""Programs that read, and their options that write, run something or read names from a file."""


def may_cover(command: Words, covered: Collection[int]) -> bool:
    """Return True if wildcards may match some words, because the program only reads them.

    Args:
        command: All words of a command.
        covered: The positions of the matched words.
    """
    own = _OWN.get(command[0])
    if not covered or own is None:
        return not covered or command[0] in _READERS
    return own(command, covered)


def only_reads(command: Words, options: Sequence[str]) -> bool:
    """Return True if a program stays read-only with some options; False for unknown programs.

    Args:
        command: All words of a command.
        options: The words that begin with ``-``.
    """
    acts = _READERS.get(command[0])
    return not options or (acts is not None and not any(map(acts.match, options)))


def _git(command: Words, covered: Collection[int]) -> bool:
    """Return True if a git command only reads the words and uses no other transport."""
    at = 1
    while at < len(command) and command[at].startswith("-"):
        at += 2 if command[at] in _GIT_VALUES else 1
    subcommand = command[at] if at < len(command) else ""
    allowed = _GIT_READS - _GIT_CHANGES if at in covered else _GIT_READS
    before = any(place < at for place in covered)
    return (
        not before
        and subcommand in allowed
        and not any("::" in command[place] for place in covered)
    )


def _uniq(command: Words, covered: Collection[int]) -> bool:
    """Return True unless a wildcard matches the second argument, which names the output file."""
    plain = [place for place, word in enumerate(command) if place and not word.startswith("-")]
    return not set(plain[1:]) & set(covered)


_OWN: Final[dict[str, _MayCover]] = {"git": _git, "uniq": _uniq}
