"""Tests of the options that the ``prune`` commands share."""

import click
import pytest
from click.testing import CliRunner

from delf_cli.pruning import DURATION, Pruning, prune_options

DAY = 86_400.0


@click.command()
@click.option("--since", type=DURATION, metavar="AGE", default="1h", show_default=True)
def look(since: float) -> None:
    click.echo(since)


@click.command()
@click.argument("name")
@prune_options(older_than_help="Forget what is so old.", keep_help="Keep N.")
def prune(name: str, pruning: Pruning) -> None:
    """Forget."""
    click.echo((name, pruning.older_than, pruning.keep, pruning.dry_run))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30d", 30 * DAY),
        ("12h", 12 * 3600.0),
        ("90m", 5400.0),
        ("45s", 45.0),
        ("2w", 14 * DAY),
        ("1.5h", 5400.0),
        (" 2 D ", 2 * DAY),
        ("0s", 0.0),
    ],
)
def test_duration_option_is_converted_to_seconds(text, seconds):
    assert CliRunner().invoke(look, ["--since", text]).stdout == f"{seconds}\n"


def test_duration_option_shows_its_default_in_help():
    assert CliRunner().invoke(look, []).stdout == "3600.0\n"
    assert "[default: 1h]" in CliRunner().invoke(look, ["--help"]).stdout


@pytest.mark.parametrize(
    "text", ["soon", "", "-3d", "1d12h", "٣d", "30", "3y", "5ſ", "9" * 400 + "d"]
)
def test_invalid_duration_is_a_usage_error(text):
    result = CliRunner().invoke(look, ["--since", text])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"Error: Invalid value for '--since': {text[:40]!r} is not a duration; "
        "write 30d, 12h, 90m, 45s or 2w"
    )


@pytest.mark.parametrize(
    ("options", "pruning"),
    [
        ((), (30 * DAY, 0, False)),
        (("--older-than", "1d"), (DAY, 0, False)),
        (("--keep", "3"), (None, 3, False)),
        (("--keep", "0", "--dry-run"), (None, 0, True)),
        (("--older-than", "1w", "--keep", "3"), (7 * DAY, 3, False)),
    ],
)
def test_prune_options_become_pruning_values(options, pruning):
    result = CliRunner().invoke(prune, ["x", *options])
    assert result.stdout == f"{('x', *pruning)}\n"


@pytest.mark.parametrize(("typed", "forgets"), [("y\n", True), ("n\n", False), ("", False)])
def test_prune_at_a_terminal_asks_for_confirmation(monkeypatch, typed, forgets):
    monkeypatch.setattr("delf_cli.pruning.can_ask", lambda: True)
    result = CliRunner().invoke(prune, ["x", "--keep", "3"], input=typed)
    assert "Remove all but the newest 3? There is no way back" in result.stderr
    assert bool(result.stdout) is forgets
    assert CliRunner().invoke(prune, ["x", "--keep", "3", "--yes"]).stdout
    assert CliRunner().invoke(prune, ["x", "--keep", "3", "--dry-run"]).stdout
