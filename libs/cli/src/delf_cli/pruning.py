"""The type of durations, and the options of ``prune``, shared by commands."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from delf.records import dataclass

if TYPE_CHECKING:
    _Type = click.ParamType[float]
else:
    _Type = click.ParamType  # not generic before click 8.2

_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
# At most nine digits: longer durations would not fit into a date.
_DURATION: Final = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([smhdw]?)", re.IGNORECASE | re.ASCII
)
_DEFAULT_AGE: Final = "30d"


class Duration(_Type):
    """A click parameter type for durations: ``30d``, ``12h``, ``90m``, ``45s`` or ``2w``.

    The value is a float of seconds.

    Args:
        is_timeout: Whether the durations are timeouts: a number without a unit is then accepted, as
            seconds, and zero is rejected.
    """

    name = "duration"

    def __init__(self, *, is_timeout: bool = False) -> None:
        self._is_timeout = is_timeout

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert a duration to seconds.

        Args:
            value: A text, or a number of seconds, as in a default.
            param: The parameter, for error messages.
            ctx: The context, for error messages.

        Raises:
            click.BadParameter: If the value is not a duration.
        """
        if isinstance(value, (int, float)):
            return float(value)
        seconds = self._parse(str(value).strip())
        # A timeout of 0 would end every wait at once. For the age of tasks, 0d means tasks of any
        # age.
        is_timeout_of_zero = self._is_timeout and seconds == 0
        if seconds is None or is_timeout_of_zero:
            value_text = repr(str(value)[:40])
            self.fail(f"{value_text} is not a duration; write 30d, 12h, 90m, 45s or 2w", param, ctx)
        return seconds

    def _parse(self, text: str) -> float | None:
        """Return the seconds of a text such as ``30d``; None if the text is not a duration."""
        duration_match = _DURATION.fullmatch(text)
        if duration_match is None:
            return None
        number, unit = duration_match.groups()
        if unit:
            return float(number) * _UNIT_SECONDS[unit.lower()]
        return float(number) if self._is_timeout else None  # a timeout without a unit is in seconds


DURATION: Final = Duration()
SECONDS: Final = Duration(is_timeout=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """The options of a ``prune`` command.

    Args:
        older_than: The age in seconds above which items are removed; None for any age.
        keep: The number of newest items to keep, whatever their age.
        dry_run: Whether to show the items without removing them.
    """

    older_than: float | None
    keep: int
    dry_run: bool


def can_ask() -> bool:
    """Return True if a person can be asked at the terminal."""
    return sys.stdin.isatty()


def _format_duration(seconds: float) -> str:
    """Format a duration in the largest fitting unit, such as ``1.5 days``."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} seconds"


def _question(age: float | None, keep: int | None) -> str:
    """Return the question that a person answers before items are removed."""
    items = "all" if age is None else f"all that is older than {_format_duration(age)}"
    exception = f" but the newest {keep}" if keep else ""
    return f"Remove {items}{exception}? There is no way back"


def prune_options(*, older_than_help: str, keep_help: str) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that adds ``--older-than``, ``--keep``, ``--dry-run`` and ``--yes``.

    The command gets one keyword argument, ``pruning``: a :class:`Pruning`. Without ``--older-than``
    and ``--keep``, items older than 30 days are removed.

    Args:
        older_than_help: The help text of ``--older-than``, without its default.
        keep_help: The help text of ``--keep``.

    Returns:
        A decorator to apply below ``@click.command``.
    """

    def decorate(command: Callable[..., Any]) -> Any:
        @functools.wraps(command)
        def ask_and_prune(
            *args: Any,
            older_than: float | None,
            keep: int | None,
            dry_run: bool,
            yes: bool,
            **options: Any,
        ) -> Any:
            age = older_than
            if age is None and keep is None:
                age = DURATION.convert(_DEFAULT_AGE, None, None)
            needs_consent = not (dry_run or yes)
            if needs_consent and can_ask():  # a job without a terminal removes without a question
                click.confirm(_question(age, keep), abort=True, err=True)
            pruning_options = Pruning(older_than=age, keep=keep or 0, dry_run=dry_run)
            return command(*args, pruning=pruning_options, **options)

        decorated: Any = ask_and_prune
        # The help lists the options in the reverse order.
        for option in (
            click.option("--yes", is_flag=True, help="Do not ask at a terminal."),
            click.option(
                "--dry-run", is_flag=True, help="Show what would be removed; change nothing."
            ),
            click.option("--keep", type=click.IntRange(min=0), metavar="N", help=keep_help),
            click.option(
                "--older-than",
                type=DURATION,
                metavar="AGE",
                help=f"{older_than_help}  [default: {_DEFAULT_AGE}, without --keep]",
            ),
        ):
            decorated = option(decorated)
        return decorated

    return decorate
