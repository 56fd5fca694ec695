"""Real databases and a real model server for whole journeys."""

import pytest

from support.dockerd import docker_session
from support.fixtures import *  # noqa: F403 - databases
from support.model_fixtures import openai_server as openai_server


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory):
    """The session's Docker engine."""
    with docker_session(tmp_path_factory) as engine:
        yield engine
