"""A real Docker engine, and backends on it."""

from __future__ import annotations

import pytest

from delf_sandbox_docker.backend import DockerBackend
from support.dockerd import docker_session


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory):
    """The session's engine."""
    with docker_session(tmp_path_factory) as engine:
        yield engine


@pytest.fixture
async def make_backend(docker_engine):
    """Makes backends and closes them after the test."""
    made = []

    def make(**options):
        options = {"pool_size": 0, **options}
        made.append(
            DockerBackend(engine=docker_engine.url, base_image=docker_engine.base_image, **options)
        )
        return made[-1]

    yield make
    for backend in made:
        await backend.aclose()


@pytest.fixture
def containers(docker_engine):
    """Gives the ids of all containers of the engine with a label, by default this process's."""
    from delf_sandbox_docker.engine import LABEL_OWNER, owner

    client = docker_engine.client()

    def ids(label=None):
        label = label or f"{LABEL_OWNER}={owner()}"
        return {c["Id"] for c in client.containers(all=True, filters={"label": [label]})}

    yield ids
    client.close()
