"""Options of the backend, and an image's name. No engine is needed."""

import json
import tempfile
from pathlib import Path

import pytest

from delf.errors import ConfigurationError, SandboxUnavailableError
from delf.protocols.sandbox import SessionSpec
from delf_sandbox_docker.backend import DockerBackend
from delf_sandbox_docker.engine import is_owner_alive, owner
from delf_sandbox_docker.image import Recipe


@pytest.mark.parametrize(("limit", "processors"), [(1, 1.0), (0.5, 0.5), ("50%", 0.5), ("2", 2.0)])
def test_cpu_limit_option_sets_processors(limit, processors):
    assert DockerBackend(cpu_limit=limit).confinement.cpu_limit == processors


@pytest.mark.parametrize(
    "options",
    [
        {"cpu_limit": 0},
        {"cpu_limit": "many"},
        {"cpu_limit": True},
        {"pids_limit": 0},
        {"pids_limit": "9"},
    ],
)
def test_invalid_options_are_refused(options):
    with pytest.raises(ConfigurationError):
        DockerBackend(**options)


async def test_failed_start_leaves_no_folder(monkeypatch, tmp_path):
    backend = DockerBackend(engine=f"unix://{tmp_path}/docker.sock", pool_size=0)
    removed = []

    async def image_for(_libraries):
        return "image", ()

    def attach(_container):
        raise SandboxUnavailableError("the engine refused")

    monkeypatch.setattr(backend, "image_for", image_for)
    monkeypatch.setattr(backend, "create_container", lambda *_: "container")
    monkeypatch.setattr(backend.engine, "attach", attach)
    monkeypatch.setattr(backend.engine, "remove", removed.append)
    with pytest.raises(SandboxUnavailableError, match="the engine refused"):
        await backend.open(SessionSpec(tools=()))
    await backend.pool.aclose()
    assert removed == ["container"]
    assert list(Path(tempfile.gettempdir()).glob(f"delf-docker-{owner()}-*/*")) == []
    await backend.aclose()


def test_image_tag_is_a_digest_of_its_recipe():
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


@pytest.mark.parametrize(
    "library",
    [
        "pandas",
        "scikit-learn",
        "pandas>=2",
        "pandas[excel,html] >= 2.1, < 3",
        "a==1.*",
        "a~=1.0rc1",
    ],
)
def test_libraries_are_passed_as_arguments_without_a_shell(library):
    recipe = Recipe(base="x", libraries=(library,))
    lines = recipe.dockerfile().splitlines()
    assert [line.split()[0] for line in lines] == ["FROM", "USER", "RUN", "COPY", "RUN"]
    assert json.loads(lines[2].partition(" ")[2])[-2:] == ["--", library]


@pytest.mark.parametrize(
    "library",
    [
        "--index-url=http://evil",
        "-r/etc/passwd",
        "-e.",
        "git+https://evil/x",
        "x @ https://evil/x.whl",
        "https://evil/x.whl",
        "./here",
        "/etc",
        "a; rm -rf /",
        'b"\nRUN evil',
        "a b",
        "a --pre",
        "a>=1;python_version>'3'",
        "$(id)",
        "",
        "é",
    ],
)
def test_invalid_library_name_is_refused(library):
    with pytest.raises(ConfigurationError, match="allowed_libs"):
        Recipe(base="x", libraries=(library,))


@pytest.mark.parametrize(
    "base", ["", "x\nRUN evil", "x AS y", "--platform=x y", "x\tRUN", "$X", "x\n"]
)
def test_invalid_image_name_is_refused(base):
    with pytest.raises(ConfigurationError, match="base_image"):
        Recipe(base=base)


@pytest.mark.parametrize(
    "base", ["python:3.12-slim", "localhost:5000/a/b_c:1", "a@sha256:0123", "[::1]:5000/x"]
)
def test_valid_image_names_are_accepted(base):
    assert Recipe(base=base).dockerfile().startswith(f"FROM {base}\n")


def test_owner_is_alive_only_for_a_live_process():
    assert is_owner_alive(owner())
    assert not is_owner_alive("")
    assert not is_owner_alive("1-1")
