"""Choice of the script in an answer with several blocks.

Blocks form one program if the text says so, or if no text separates them and the later block uses
names of the earlier one. Of versions and alternatives, the last block is used. Examples, tests and
quotations of another block are ignored. In all other cases the script is ambiguous.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from delf_strategy_codegen.blocks import Block
from delf_strategy_codegen.python import (
    bound_names,
    free_names,
    is_script,
    parse_script,
    tree_or_syntax_error,
)

_MAX_COMPARED: Final = 20
_MIN_SIMILARITY: Final = 0.6
_CONTEXT_CHARS: Final = 300

_EXAMPLE: Final = re.compile(
    r"\b(?:example|usage|for instance|e\.g\.|sample|to test|tests?|testing|try it|expected|"
    r"output|prints|would print|explanation|explained|equivalent|optional(?:ly)?|if you (?:also )?"
    r"(?:want|need|prefer|like))\b",
    re.IGNORECASE,
)
_SCRIPT_NOUNS: Final = r"(?:version|script|code|answer|solution|program|thing|one)"
_OTHER_VERSION: Final = re.compile(
    r"(?:^|[\n.!?:;(*#-]\s*)(?:or|wait|actually|no)\b|"
    r"\b(?:alternative(?:ly|s)?|option|instead|(?:another|second|other) (?:way|approach)|"
    r"versions?|variants?|better|improved?|improvement|corrected|correction|fix(?:ed|es)?|mistake|"
    r"revised|revision|rewritten|refactored|simpler|simplified|shorter|cleaner|all together|"
    r"altogether|putting (?:it|this|everything|them)|in one|"
    rf"(?:updated|correct|complete|full|entire|whole|final|combined) (?:\w+ )?{_SCRIPT_NOUNS})\b",
    re.IGNORECASE,
)
_CONTINUATION: Final = re.compile(
    r"\b(?:then|next|after (?:that|this|which)|afterwards?|finally|lastly|second(?:ly)?|"
    r"third(?:ly)?|fourth|step \d+|part \d+|now|continu(?:e|es|ed|ing)|followed by|"
    r"subsequently|once (?:that|this|we|you|it)|with (?:that|this|these|the|it|them)|"
    r"using (?:that|this|these|the)|from (?:that|this|these)|and (?:then|finally|now))\b"
    r"|^\W*(?:and|plus|and also)\W*$|(?:^|\n)\s*[2-9]\d*[.)]\s",
    re.IGNORECASE,
)

AMBIGUOUS: Final = (
    "That answer held several scripts, and does not say which one is meant, or whether they are "
    "one. Answer with one block that holds all of it, and no other."
)
_UNREADABLE: Final = (
    "The last block of that answer is not Python: {}. Answer with one block that holds all of it."
)


class Reading(NamedTuple):
    """The result of the search for a script in an answer.

    Args:
        code: The script; None if the answer has no unambiguous script.
        why: The feedback for the model if ``code`` is None; empty for the usual feedback.
    """

    code: str | None = None
    why: str = ""


def choose_script(blocks: Sequence[Block]) -> Reading:
    """Choose the script among the blocks of an answer.

    The first of these rules that applies decides:

    - If no block is a valid script, see :func:`_reading_of_longest_block`.
    - If a script uses a name that only an example defines, the choice is ambiguous. A block is an
      example if the text before the block has a word such as "example" or "usage".
    - If the last block is not Python, the answer has a problem, because the last block usually is
      the script or its end.
    - Scripts that continue each other are joined; of several versions, the last is taken. If all
      scripts are examples, the same is done with the examples.

    Args:
        blocks: The blocks that may be Python, in order; at least one.

    Returns:
        A reading with the script, or with a problem if several choices are plausible.
    """
    distinct_blocks = _without_repeated([block for block in blocks if block.code])
    scripts = [block for block in distinct_blocks if is_script(block.code)]
    if not scripts:
        return _reading_of_longest_block(distinct_blocks)
    examples = [block for block in scripts if _EXAMPLE.search(_nearby_text(block.text_before))]
    candidates = [block for block in scripts if block not in examples]
    if candidates and _needs_names_of(candidates, examples):
        return Reading(None, AMBIGUOUS)
    last_block = distinct_blocks[-1]
    if parse_script(last_block.code) is None:
        return Reading(None, _UNREADABLE.format(_describe_problem(last_block.code)))
    return _join_or_choose(candidates or examples)


def _needs_names_of(candidates: Sequence[Block], examples: Sequence[Block]) -> bool:
    """Return True if a candidate uses a name that an example binds and no candidate binds."""
    needed_names = _union(free_names(block.code) for block in candidates)
    names_of_candidates = _union(bound_names(block.code) for block in candidates)
    names_of_examples = _union(bound_names(block.code) for block in examples)
    return bool(needed_names & (names_of_examples - names_of_candidates))


def _join_or_choose(scripts: Sequence[Block]) -> Reading:
    """Join scripts that continue each other; of several versions of a script, return the last.

    The reading has no script if it is unclear whether a block continues or replaces the blocks
    before, unless a later block clearly replaces them all.
    """
    can_compare = len(scripts) <= _MAX_COMPARED
    chosen_blocks = [scripts[0]]
    is_ambiguous = False
    for block in scripts[1:]:
        match _relation(chosen_blocks, block, can_compare=can_compare):
            case "continues":
                chosen_blocks.append(block)
            case "replaces":
                chosen_blocks = [block]
                is_ambiguous = False
            case "unclear":
                is_ambiguous = True
    if is_ambiguous:
        return Reading(None, AMBIGUOUS)
    return Reading("\n\n".join(block.code for block in chosen_blocks))


def _relation(
    earlier_blocks: Sequence[Block], block: Block, *, can_compare: bool
) -> Literal["continues", "replaces", "unclear"]:
    """Return whether a block continues or replaces earlier blocks.

    Args:
        earlier_blocks: The earlier blocks.
        block: The block.
        can_compare: Whether to compare the lines of the blocks, which takes time.
    """
    text = _nearby_text(block.text_before)
    announces_version = _OTHER_VERSION.search(text) is not None
    announces_continuation = not announces_version and _CONTINUATION.search(text) is not None
    earlier_names = _union(bound_names(item.code) for item in earlier_blocks)
    uses_earlier_names = bool(free_names(block.code) & earlier_names)
    if uses_earlier_names:
        follows_directly = not block.text_before.strip()
        if announces_continuation or follows_directly:
            return "continues"
        return "unclear"  # the block may also correct a part of the earlier blocks
    if announces_version or (can_compare and _is_version(earlier_blocks, block)):
        return "replaces"
    return "continues" if announces_continuation else "unclear"


def _union(sets: Iterable[set[str]]) -> set[str]:
    return {name for names in sets for name in names}


def _nearby_text(text_before: str) -> str:
    """Return the last characters of the text before a block, which usually describe the block."""
    return text_before[-_CONTEXT_CHARS:]


def _reading_of_longest_block(parts: Sequence[Block]) -> Reading:
    """Return a reading with the longest block as the script.

    A block with a syntax error is also returned: the model then gets the error as feedback. The
    reading has no script if there is no block, or if the longest block is not Python, but, for
    example, JSON.
    """
    if not parts:
        return Reading()
    longest = max(parts, key=lambda block: len(block.code))
    tree = parse_script(longest.code)
    has_syntax_error = tree is None
    if has_syntax_error:
        return Reading(longest.code)
    if tree.body and longest.is_python:
        return Reading(longest.code)
    return Reading()


def _without_repeated(blocks: Sequence[Block]) -> list[Block]:
    """Remove blocks whose lines are all in another block; of equal blocks, keep the last."""
    lines_of_blocks = [_distinct_lines(block.code) for block in blocks]
    distinct_blocks: list[Block] = []
    for index, lines in enumerate(lines_of_blocks[:_MAX_COMPARED]):
        is_part_of_longer = any(lines < other_lines for other_lines in lines_of_blocks)
        is_repeated_later = lines in lines_of_blocks[index + 1 :]
        if not is_part_of_longer and not is_repeated_later:
            distinct_blocks.append(blocks[index])
    not_compared = blocks[_MAX_COMPARED:]
    return [*distinct_blocks, *not_compared]


def _distinct_lines(code: str) -> set[str]:
    """Return the lines of code without indentation, blank lines and repetitions."""
    lines = {line.strip() for line in code.split("\n")}
    lines.discard("")
    return lines


def _is_version(earlier_blocks: Sequence[Block], later_block: Block) -> bool:
    """Return whether a block is a new version of earlier blocks, not their continuation."""
    earlier = "\n\n".join(block.code for block in earlier_blocks)
    earlier_names = bound_names(earlier)
    later_names = bound_names(later_block.code)
    shared_names = earlier_names & later_names
    half_of_names = min(len(earlier_names), len(later_names)) / 2
    if shared_names and len(shared_names) >= half_of_names:
        return True
    matcher = difflib.SequenceMatcher(None, earlier.split("\n"), later_block.code.split("\n"))
    return matcher.quick_ratio() > _MIN_SIMILARITY


def _describe_problem(code: str) -> str:
    """Describe why code that is no valid Python cannot be parsed."""
    error = tree_or_syntax_error(code)
    # Without a syntax error, the parser has usually stopped at code that is nested too deeply.
    if not isinstance(error, SyntaxError):
        return "it is nested too deeply"
    line = f" in its line {error.lineno}" if error.lineno else ""
    return f"{error.msg}{line}"
