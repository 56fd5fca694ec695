from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from delf_cli.main import cli

Run = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here: Path) -> Run:
    """Runs the program in this process, in an empty folder."""
    runner = CliRunner()

    def invoke(*arguments: str, **options: object) -> Result:
        return runner.invoke(cli, [str(a) for a in arguments], **options)

    return invoke
