"""Programs that only read their words, so that a wildcard may stand for those.

Many others run a word, write to it, or send it somewhere: for them rules name the words, or say
``**``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Final

from delf_shell.parse import Words

Covers = Callable[[Words, Collection[int]], bool]
"""The places of words that wildcards may match."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GIT_READS: Final = _words(
    "add annotate blame cat-file check-attr check-ignore cherry commit count-objects describe diff "
    "diff-files diff-index diff-tree for-each-ref fsck grep log ls-files ls-tree merge-base "
    "name-rev range-diff rev-list rev-parse shortlog show show-branch show-ref status var "
    "verify-commit verify-tag whatchanged"
)
_GIT_CHANGES: Final = frozenset({"add", "commit"})
"""Named by a rule, their words are only read."""
_GIT_VALUES: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace"})
_NONE_ACTS: Final = re.compile(r"(?!)")
_READERS: Final[dict[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        _words(
            "basename cat cmp cut diff dirname echo grep head ls nl od paste pwd stat tail tr uniq"
        ),
        _NONE_ACTS,
    ),
    # Letters may stand together, and long names be shortened.
    "sort": re.compile(r"-[^-]*[oT]|--(?:o|co|t|fil)"),
    "wc": re.compile(r"--f"),
    "find": re.compile(r"-(?:delete|exec|ok|fprint|fls|files0)"),
    "git": re.compile(r"-[^-]*O|--(?:ou|op|ext|exec|te|lo|git-dir|work-tree|config-env|namespace)"),
}
"""Programs that read, and their options that write, run something or read names from a file."""


def may_cover(command: Words, covered: Collection[int]) -> bool:
    """Return whether wildcards may match these words: whether the program only reads them.

    Args:
        command: All words of a command.
        covered: The places of those that wildcards stand for.
    """
    own = _OWN.get(command[0])
    if not covered or own is None:
        return not covered or command[0] in _READERS
    return own(command, covered)


def only_reads(command: Words, options: Sequence[str]) -> bool:
    """Return whether a program's options keep it read-only; unknown programs' do not.

    Args:
        command: All words of a command.
        options: Those of its words that begin with ``-``.
    """
    acts = _READERS.get(command[0])
    return not options or (acts is not None and not any(map(acts.match, options)))


def _git(command: Words, covered: Collection[int]) -> bool:
    """Return words of commands that read; none that names another way of transport."""
    at = 1
    while at < len(command) and command[at].startswith("-"):
        at += 2 if command[at] in _GIT_VALUES else 1
    named = command[at] if at < len(command) else ""
    known = _GIT_READS - _GIT_CHANGES if at in covered else _GIT_READS
    before = any(place < at for place in covered)
    return not before and named in known and not any("::" in command[place] for place in covered)


def _uniq(command: Words, covered: Collection[int]) -> bool:
    """Return the second word without a dash is where the result is written to."""
    plain = [place for place, word in enumerate(command) if place and not word.startswith("-")]
    return not set(plain[1:]) & set(covered)


_OWN: Final[dict[str, Covers]] = {"git": _git, "uniq": _uniq}
