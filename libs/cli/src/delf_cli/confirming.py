"""A yes-or-no question of a command that its option ``--yes`` answers in advance."""

from __future__ import annotations

import sys

import click

from delf.errors import ConfigurationError


def confirm(question: str, *, yes: bool) -> bool:
    """Ask a question on stderr; return True if the answer is yes.

    Args:
        question: The question.
        yes: Whether the option ``--yes`` answered the question in advance, so that nobody is asked.

    Raises:
        ConfigurationError: If nobody can be asked, because the input is no terminal and has no
            answer.
        click.Abort: If the person presses Ctrl-C.
    """
    if yes:
        return True
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)  # the question has no line break
        raise ConfigurationError(
            "nothing was done, because nobody could be asked", hint="approve it in advance: --yes"
        ) from None
