"""Questions that a script asks a person, and the reading of their answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, Self, cast, get_args

from delf.errors import DelfError, ToolRefusedError
from delf.records import dataclass

AnswerKind = Literal["text", "yes/no", "number"]
"""The kinds of answers to a question without options."""
_YES_NO: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("yes", "y", "true"), True),
    **dict.fromkeys(("no", "n", "false"), False),
}
_MAX_OPTIONS: Final = 100
_MAX_NAMED: Final = 10
# The maximum length of a question's text, and of each option.
_MAX_QUESTION_CHARACTERS: Final = 10_000
_MAX_ANSWER_CHARACTERS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of a script: the arguments of ``ask``.

    Args:
        text: The question.
        options: The answers to choose from; empty if the person answers freely.
        answer: The kind of a free answer.
        default: The answer if nobody can be asked or nobody answers in time. If ``default`` is
            None, ``ask`` raises an error in these cases.
    """

    text: str
    options: tuple[str, ...] = ()
    answer: AnswerKind = "text"
    default: Any = None

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> Self:
        """Return the question of a call of ``ask``."""
        return cls(
            text=str(arguments.get("question", "")),
            options=tuple(map(str, arguments.get("options") or ())),
            answer=arguments.get("answer", "text"),
            default=arguments.get("default"),
        )

    @property
    def choices(self) -> tuple[str, ...]:
        """All possible answers as texts; empty for a free text and a number."""
        if self.options:
            return self.options
        return ("yes", "no") if self.answer == "yes/no" else ()

    @property
    def kind_text(self) -> str:
        """The kind of answer in words, such as ``one of 3 options``."""
        if self.options:
            return f"one of {len(self.options)} options"
        return {"yes/no": "yes or no", "number": "a number"}.get(self.answer, "a text")

    def check(self) -> None:
        """Check that the question can be answered.

        Raises:
            ToolRefusedError: If the text is empty, the options are unusable, or the default is no
                answer to the question.
        """
        if not self.text.strip():
            raise ToolRefusedError("the question is empty")
        longest = max(map(len, (self.text, *self.options)))
        if longest > _MAX_QUESTION_CHARACTERS:
            raise ToolRefusedError(
                f"the question or an option has {longest:,} characters; a person reads at most "
                f"{_MAX_QUESTION_CHARACTERS:,}"
            )
        answer_kind = self.answer
        if answer_kind not in get_args(AnswerKind):
            kinds = ", ".join(map(repr, get_args(AnswerKind)))
            raise ToolRefusedError(f"answer is {answer_kind!r}; it must be one of {kinds}")
        if self.options and answer_kind != "text":
            raise ToolRefusedError(
                f"a question with options has answer='text', not {answer_kind!r}"
            )
        if len(self.options) > _MAX_OPTIONS:
            raise ToolRefusedError(
                f"{len(self.options):,} options are more than a person reads; at most "
                f"{_MAX_OPTIONS}"
            )
        if len({_comparable(option) for option in self.options}) < len(self.options):
            raise ToolRefusedError("two options are the same: add what tells them apart")
        if not all(map(str.strip, self.options)):
            raise ToolRefusedError("an option is empty")
        if self.default is not None:
            try:
                self.read(self.default)
            except DelfError as error:
                raise ToolRefusedError(f"default cannot be the answer: {error.message}") from None

    def read(self, reply: object) -> str | bool | int | float:
        """Convert a person's answer, such as the text ``yes``, to the value for the script.

        Raises:
            DelfError: If the reply does not answer the question.
        """
        if self.options:
            return self._find_option(reply)
        match self.answer:
            case "yes/no":
                value = reply if isinstance(reply, bool) else _YES_NO.get(_comparable(reply))
                if value is None:
                    raise _wrong_answer_error(reply, "answer yes or no")
                return value
            case "number":
                return _parse_number(reply)
            case _:
                if not isinstance(reply, str) or not reply.strip():
                    raise _wrong_answer_error(reply, "answer with a text")
                if len(reply) > _MAX_ANSWER_CHARACTERS:
                    raise DelfError(
                        f"the answer has more than {_MAX_ANSWER_CHARACTERS:,} characters"
                    )
                return reply

    def _find_option(self, reply: object) -> str:
        """Return the option that an answer names, ignoring case and spaces; raise if none fits."""
        if reply in self.options:
            return cast("str", reply)
        matching_options = [
            option for option in self.options if _comparable(option) == _comparable(reply)
        ]
        if len(matching_options) == 1:
            return matching_options[0]
        option_names = ", ".join(map(repr, self.options[:_MAX_NAMED]))
        omitted_count = len(self.options) - _MAX_NAMED
        if omitted_count > 0:
            option_names += f" and {omitted_count} more"
        raise _wrong_answer_error(reply, f"one of {option_names}")


def _comparable(text: object) -> str:
    """Normalise the spaces and the case of a text answer, to compare it with other answers.

    Return an empty text for an answer that is not a text.
    """
    return " ".join(text.split()).casefold() if isinstance(text, str) else ""


def _parse_number(answer: object) -> int | float:
    """Convert an answer to a finite number."""
    if isinstance(answer, (int, float)) and not isinstance(answer, bool) and _is_finite(answer):
        return answer
    text = answer.strip() if isinstance(answer, str) else ""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if _is_finite(number):
            return number
    raise _wrong_answer_error(answer, "answer with a number, as 12 or 12.5")


def _is_finite(number: float) -> bool:
    # math.isfinite() raises for an int that is too large for a float.
    return isinstance(number, int) or math.isfinite(number)


def _wrong_answer_error(reply: object, hint: str) -> DelfError:
    answer_text = repr(reply)
    if len(answer_text) > 100:
        answer_text = f"{answer_text[:100]}…"
    return DelfError(f"{answer_text} does not answer the question", hint=hint)
