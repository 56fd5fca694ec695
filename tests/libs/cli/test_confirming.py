import click
import pytest
from click.testing import CliRunner

from delf.errors import ConfigurationError
from delf_cli.confirming import confirm


@click.command
@click.option("--yes", is_flag=True)
def remove(*, yes: bool) -> None:
    click.echo(confirm("Remove all?", yes=yes))


@pytest.mark.parametrize(("answer", "shown"), [("y\n", "True\n"), ("n\n", "False\n")])
def test_piped_answer_is_taken(answer: str, shown: str) -> None:
    done = CliRunner().invoke(remove, input=answer)
    assert done.stdout == shown
    assert "Remove all?" in done.stderr


def test_question_is_omitted_with_yes() -> None:
    assert CliRunner().invoke(remove, ["--yes"]).output == "True\n"


def test_question_that_nobody_can_answer_names_the_option() -> None:
    done = CliRunner().invoke(remove)
    assert isinstance(done.exception, ConfigurationError)
    assert done.exception.hint == "approve it in advance: --yes"
