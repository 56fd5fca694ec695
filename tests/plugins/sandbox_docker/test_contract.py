import asyncio

import pytest

from delf.testing import PluginContract, SandboxContract
from delf_sandbox_docker.engine import LABEL_OWNER, owner

pytestmark = [pytest.mark.service, pytest.mark.timeout(120)]


class Docker(SandboxContract):
    # A container may start processes of its own: it has 64 of them, and nothing to run.
    confines = frozenset({"environment", "files", "network"})
    transport = "stdio"

    @pytest.fixture
    def backend(self, docker_engine, make_backend):
        self.client = docker_engine.client()
        yield make_backend(transport=self.transport)
        self.client.close()

    def belongings(self):
        label = f"{LABEL_OWNER}={owner()}"
        return {c["Id"] for c in self.client.containers(all=True, filters={"label": [label]})}

    async def leftovers(self, seen):
        end = asyncio.get_running_loop().time() + 5
        while (left := self.belongings() & seen) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        return left


class TestDockerOverStandardStreams(Docker):
    pass


class TestDockerOverSocket(Docker):
    transport = "socket"


class TestPlugin(PluginContract):
    name = "sandbox-docker"
    offers = {"sandbox": ["docker"], "command": ["sandbox"]}
