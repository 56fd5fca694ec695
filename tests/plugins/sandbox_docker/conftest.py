"""A real Docker engine, and backends on it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from delf_sandbox_docker.backend import DockerBackend
from support.dockerd import docker_session

NO_IMAGE = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'


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
    """Lists the ids of the engine's containers with a label, by default this process's."""
    from delf_sandbox_docker.engine import LABEL_OWNER, owner

    client = docker_engine.client()

    def ids(label=None):
        label = label or f"{LABEL_OWNER}={owner()}"
        return {c["Id"] for c in client.containers(all=True, filters={"label": [label]})}

    yield ids
    client.close()


@pytest.fixture
def registry():
    """A registry without images; ``asked`` has the requests that it got."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(404 if self.path != "/v2/" else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(NO_IMAGE)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(NO_IMAGE)

        do_HEAD = do_GET

        def log_message(self, *_):
            """Nothing is written."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked = asked
    serving = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    )
    serving.start()
    yield server
    server.shutdown()
    server.server_close()
    serving.join()
