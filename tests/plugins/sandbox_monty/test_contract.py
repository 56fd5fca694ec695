import pytest

from delf.testing import PluginContract, SandboxContract
from delf_devkit.testing.contracts import sandbox_calls
from delf_devkit.testing.contracts.bench import Bench, require_done, require_failed
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_sandbox_monty.backend import MontyBackend


class TestMonty(SandboxContract):
    cpython = False
    confines = frozenset({"files"})
    crash = None

    @pytest.fixture
    def backend(self):
        return MontyBackend()

    async def test_values_round_trip(self, backend, monkeypatch):
        kept = sandbox_calls.VALUES[:-1]  # Monty has no UUIDs: scripts see text
        monkeypatch.setattr(sandbox_calls, "VALUES", kept)
        await super().test_values_round_trip(backend)

    async def test_output_files_reach_the_host(self, backend):
        code = """
add_to_output_files("a.txt", "Grüße")
await add_to_output_files("folder/b.bin", b"\\x00\\xff" * 1048576)
add_to_output_files("c.csv", [{"a": 1, "b": "x,y"}])
add_to_output_files("empty.txt", "")
"""
        async with Bench(backend) as bench:
            run = await bench.open()
            require_done(await run(code))
        assert run.host.files == {
            "a.txt": "Grüße".encode(),
            "folder/b.bin": b"\x00\xff" * 1048576,
            "c.csv": b'a,b\n1,"x,y"\n',
            "empty.txt": b"",
        }

    async def test_script_can_cancel_a_call(self, backend):
        """Monty has no tasks, and says so."""
        host = RecordingScriptHost({"wait": lambda: 1})
        async with Bench(backend) as bench:
            code = "import asyncio\ntask = asyncio.ensure_future(wait())\ntask.cancel()"
            outcome = require_failed(await bench.run(code, host))
        assert "without cancelling tasks" in outcome.message
        assert outcome.line == 3


class TestPlugin(PluginContract):
    name = "sandbox-monty"
    offers = {"sandbox": ["monty"]}
