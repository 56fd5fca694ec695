"""What commands of the core and of plugins share."""

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
@prune_options(older_than="Forget what is so old.", keep="Keep N.")
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
def test_a_duration_is_given_in_seconds(text, seconds):
    assert CliRunner().invoke(look, ["--since", text]).stdout == f"{seconds}\n"


def test_a_duration_has_a_default_as_it_is_written():
    assert CliRunner().invoke(look, []).stdout == "3600.0\n"
    assert "[default: 1h]" in CliRunner().invoke(look, ["--help"]).stdout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "'soon' is not a duration; write 30d, 12h, 90m, 45s or 2w"),
        ("", "'' is not a duration; write 30d, 12h, 90m, 45s or 2w"),
        ("-3d", "'-3d' is not a duration; write 30d, 12h, 90m, 45s or 2w"),
        ("1d12h", "'1d12h' is not a duration; write 30d, 12h, 90m, 45s or 2w"),
        ("٣d", "'٣d' is not a duration; write 30d, 12h, 90m, 45s or 2w"),
        ("30", "'30' has no unit; write 30d, 12h, 90m, 45s or 2w"),
        ("3y", "'3y' has an unknown unit 'y'; write 30d, 12h, 90m, 45s or 2w"),
        ("9999999d", "'9999999d' is over a thousand years"),
        ("9" * 400 + "d", f"'{'9' * 40}' is over a thousand years"),
    ],
)
def test_what_is_no_duration_is_a_usage_error(text, why):
    result = CliRunner().invoke(look, ["--since", text])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == f"Error: Invalid value for '--since': {why}"


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
def test_a_command_that_prunes_is_given_what_to_forget(options, pruning):
    result = CliRunner().invoke(prune, ["x", *options])
    assert result.stdout == f"{('x', *pruning)}\n"


def test_the_options_of_prune_are_explained():
    text = " ".join(CliRunner().invoke(prune, ["--help"]).stdout.split())
    assert "Usage: prune [OPTIONS] NAME Forget." in text
    assert "--older-than AGE Forget what is so old. [default: 30d, without --keep]" in text
    assert "--keep N Keep N. [x>=0]" in text
    assert "--dry-run Show what would be removed; change nothing." in text


def test_less_than_none_cannot_be_kept():
    assert CliRunner().invoke(prune, ["x", "--keep", "-1"]).exit_code == 2
