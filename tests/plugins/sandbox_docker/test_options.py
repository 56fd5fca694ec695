"""Options of the backend, and an image's name. No engine is needed."""

import pytest

from delf.errors import ConfigurationError
from delf_sandbox_docker.backend import DockerBackend
from delf_sandbox_docker.engine import owner, owner_lives
from delf_sandbox_docker.image import Recipe


@pytest.mark.parametrize(("limit", "processors"), [(1, 1.0), (0.5, 0.5), ("50%", 0.5), ("2", 2.0)])
def test_processors(limit, processors):
    assert DockerBackend(cpu_limit=limit)._confinement.cpu_limit == processors


@pytest.mark.parametrize(
    "options",
    [
        {"cpu_limit": 0},
        {"cpu_limit": "many"},
        {"cpu_limit": True},
        {"pids_limit": 0},
        {"pids_limit": "9"},
        {"transport": "tcp"},
    ],
)
def test_options_that_are_none(options):
    with pytest.raises(ConfigurationError):
        DockerBackend(**options)


def test_an_image_is_named_after_what_goes_into_it():
    plain = Recipe(base="python:3.12-slim")
    assert plain.tag == Recipe(base="python:3.12-slim").tag
    assert plain.tag.startswith("delf-sandbox:")
    others = {
        Recipe(base="python:3.13-slim").tag,
        Recipe(base="python:3.12-slim", libraries=("a", "b")).tag,
        Recipe(base="python:3.12-slim", libraries=("a",)).tag,
    }
    assert len(others | {plain.tag}) == 4
    assert (
        Recipe(base="x", libraries=("a", "b")).tag
        == Recipe(base="x", libraries=("b", "a", "a")).tag
    )


def test_libraries_are_arguments_and_no_shell_text():
    recipe = Recipe(base="x", libraries=("a; rm -rf /", 'b"\nRUN evil'))
    assert [line.split()[0] for line in recipe.dockerfile().splitlines()] == [
        "FROM",
        "USER",
        "RUN",
        "COPY",
        "RUN",
    ]


def test_owners_are_told_apart():
    assert owner_lives(owner())
    assert not owner_lives("")
    assert not owner_lives("1-1")
