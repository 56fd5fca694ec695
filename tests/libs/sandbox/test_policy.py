"""Tests of the function ``open`` that scripts see."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf_sandbox.guest.policy import RestrictedOpen


@pytest.fixture
def restricted_open(tmp_path: Path) -> Callable[..., Any]:
    """Return ``open`` for the input file ``data.csv`` and the scratch folder ``scratch``."""
    (tmp_path / "data.csv").write_text("input")
    (tmp_path / "scratch").mkdir()
    return RestrictedOpen([str(tmp_path / "data.csv")], [str(tmp_path / "scratch")])


def test_open_replaces_a_link_to_an_input_in_the_scratch_folder(
    restricted_open: Callable[..., Any], tmp_path: Path
) -> None:
    link = tmp_path / "scratch/data.csv"
    link.symlink_to(tmp_path / "data.csv")
    with restricted_open(str(link), "w") as file:
        file.write("changed")
    assert link.read_text() == "changed"
    assert (tmp_path / "data.csv").read_text() == "input"


@pytest.mark.parametrize(
    ("target", "message"), [("data.csv", "input file"), ("other.csv", "outside the folders")]
)
def test_open_keeps_a_link_outside_of_the_scratch_folder(
    target: str, message: str, restricted_open: Callable[..., Any], tmp_path: Path
) -> None:
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / target)
    with pytest.raises(PermissionError, match=message):
        restricted_open(str(link), "w")
    assert link.is_symlink()
