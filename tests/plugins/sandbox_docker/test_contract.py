import asyncio

import pytest

from delf.errors import SandboxUnavailableError
from delf.protocols.sandbox import Available, SessionSpec
from delf.testing import PluginContract, SandboxContract
from delf_engine.sandboxes.isolation import measure
from delf_sandbox_docker.backend import DockerBackend
from delf_sandbox_docker.engine import LABEL_OWNER, owner
from delf_sandbox_docker.failures import FailedBuilds
from delf_sandbox_docker.image import Recipe

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]


class TestDocker(SandboxContract):
    # A container may start processes of its own: it has 64 of them, and nothing to run.
    confines = frozenset({"environment", "files", "network"})

    @pytest.fixture
    def backend(self, docker_engine, make_backend):
        self.client = docker_engine.client()
        yield make_backend()
        self.client.close()

    def processes_and_containers(self):
        label = f"{LABEL_OWNER}={owner()}"
        return {c["Id"] for c in self.client.containers(all=True, filters={"label": [label]})}

    async def still_running(self, seen):
        end = asyncio.get_running_loop().time() + 5
        while (
            left := self.processes_and_containers() & seen
        ) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        return left


async def test_container_isolation_is_not_reported_as_vm(make_backend):
    measured = await measure(make_backend(), thorough=True)
    assert (measured.can_make_system_calls, measured.protects_files, measured.blocks_network) == (
        True,
        True,
        True,
    )
    assert (measured.protects_processes, measured.limits_process_count) == (True, True)
    assert measured.trusted_isolation("container") == "container"
    assert measured.trusted_isolation("vm") == "container"


class TestPlugin(PluginContract):
    name = "sandbox-docker"
    offers = {"sandbox": ["docker"]}


async def test_unavailable_image_is_reported_before_a_task(docker_engine):
    backend = DockerBackend(engine=docker_engine.url, base_image="nobody/nothing:1", pool_size=0)
    try:
        assert isinstance(await backend.available(), Available), "the engine itself answers"
        with pytest.raises(SandboxUnavailableError, match="cannot be built from") as shown:
            await backend.prepare(())
        assert "base_image" in str(shown.value.hint)
    finally:
        await backend.aclose()


async def test_unavailable_image_is_not_requested_for_each_task(docker_engine, registry):
    base = f"127.0.0.1:{registry.server_port}/nobody/nothing:1"

    async def prepare():
        backend = DockerBackend(engine=docker_engine.url, base_image=base, pool_size=0)
        try:
            await backend.prepare(())
        finally:
            await backend.aclose()

    with pytest.raises(SandboxUnavailableError) as first:
        await prepare()
    asked = len(registry.asked)
    assert asked > 0
    with pytest.raises(SandboxUnavailableError) as second:
        await prepare()
    assert len(registry.asked) == asked, "another agent does not pay for it again"
    assert second.value.message == first.value.message
    assert str(second.value.hint).startswith(f"{first.value.hint}; a task tries again in ")

    client = docker_engine.client()
    try:
        client.tag(docker_engine.base_image, base.rpartition(":")[0], "1")
        await prepare()  # the base is there now, so the failure of then says nothing
    finally:
        client.remove_image(base, noprune=True)
        client.close()


async def test_removed_image_is_rebuilt(make_backend, docker_engine):
    base = "delf-test-other:1"
    client = docker_engine.client()
    client.tag(docker_engine.base_image, "delf-test-other", "1")
    backend = DockerBackend(engine=docker_engine.url, base_image=base, pool_size=0)
    spec = SessionSpec(tools=())
    try:
        await (await backend.open(spec)).aclose()
        client.remove_image(Recipe(base=base).tag, force=True)
        with pytest.raises(SandboxUnavailableError, match="No such image"):
            await backend.open(spec)
        await (await backend.open(spec)).aclose()
    finally:
        await backend.aclose()
        client.remove_image(base, noprune=True)
        client.close()


def test_failed_build_is_retried_after_two_minutes(tmp_path):
    now = 1000.0
    failed = FailedBuilds(tmp_path / "kept", lambda: now)
    other = FailedBuilds(tmp_path / "kept", lambda: now)
    about = ("engine", "image:1", "", "")
    failed.check(about)
    failed.record(about, SandboxUnavailableError("no route", hint="docker pull it"))
    with pytest.raises(SandboxUnavailableError, match="no route"):
        other.check(about)
    other.check(("another engine", *about[1:]))
    other.check((*about[:-1], "sha256:1"))
    now = 1121.0
    other.check(about)
    assert not list((tmp_path / "kept").iterdir())
    now = 500.0
    failed.record(about, SandboxUnavailableError("no route"))
    now = -500.0
    other.check(about)  # a clock that was set back does not make it last forever


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"at": "x"}', b"\xff"])
def test_unreadable_build_record_is_ignored(tmp_path, content):
    failed = FailedBuilds(tmp_path)
    failed.record(("a",), SandboxUnavailableError("no route"))
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    assert failed.check(("a",)) is None, "the build is tried again"
