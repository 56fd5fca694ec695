"""Attempts to get out of the interpreter, or to take more of the host than was given."""

import resource

import pytest

from delf.protocols.sandbox import Done, Failed, LimitReached
from delf_devkit.testing.contracts.bench import Bench
from delf_devkit.testing.scripts import RecordingScriptHost
from delf_sandbox import folders
from delf_sandbox_monty.backend import MontyBackend

ATTEMPTS = {
    "a path upward": "open('/scratch/../../etc/passwd')",
    "a path of the host": "open('/etc/passwd')",
    "the host's own name of the folder": "open({scratch!r})",
    "a file in the workspace": "open('/workspace/x', 'w')",
    "the root": "from pathlib import Path\nlist(Path('/').iterdir())",
    "a link": "from pathlib import Path\nPath('/scratch/s').symlink_to('/etc/passwd')",
    "a second name": "from pathlib import Path\nPath('/scratch/s').hardlink_to('/etc/passwd')",
    "a file moved out": "open('a', 'w').write('x')\nfrom pathlib import Path\nPath('a').rename('/workspace/b')",
    "a file moved upward": "open('a', 'w').write('x')\nfrom pathlib import Path\nPath('a').rename('../../pwned')",
    "rights of a file": "open('a', 'w').write('x')\nfrom pathlib import Path\nPath('a').chmod(0o6777)",
    "the environment": "import os\nos.environ",
    "a variable of it": "import os\nos.getenv('HOME')",
    "a program": "import subprocess\nsubprocess.run(['id'])",
    "a socket": "import socket\nsocket.socket()",
    "a library of C": "import ctypes\nctypes.CDLL(None)",
    "globals of a tool": "shop.find.__globals__",
    "the class of a tool": "type(shop).__mro__",
    "attributes of a tool": "shop.__dict__",
    "a private method": "await shop._secret()",
    "a method that is none": "await shop.drop()",
    "subclasses": "().__class__.__base__.__subclasses__()",
    "frames": "def f():\n    return f.__code__\nf()",
    "a file name upward": "add_to_output_files('../x', 'y')",
    "the exception's frames": "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__.tb_frame",
}


@pytest.fixture
async def run():
    async with Bench(MontyBackend()) as bench:
        host = RecordingScriptHost({"shop.find": lambda: 1})
        yield await bench.open(host)


@pytest.mark.parametrize("name", ATTEMPTS)
async def test_own_escape_attempts_fail(run, name):
    code = ATTEMPTS[name].replace("{scratch!r}", repr(str(run.session.folder / "scratch")))
    outcome = await run(code)
    assert isinstance(outcome, Failed | LimitReached), outcome
    assert run.host.files == {}


@pytest.mark.parametrize("depth", [50, 900, 100_000])
async def test_deeply_nested_value_ends_a_script_normally(run, depth):
    outcome = await run(f"x = []\nfor _ in range({depth}):\n    x = [x]\nx")
    assert isinstance(outcome, Done), outcome
    assert run.session.alive


@pytest.mark.parametrize("code", ["await shop.find(deep)", "await shop.find()"])
async def test_deeply_nested_value_of_a_call_is_refused_with_the_reason(run, code):
    deep = []
    for _ in range(400):
        deep = [deep]
    run.host.tools["shop.find"] = lambda *_: deep
    outcome = await run(f"deep = []\nfor _ in range(400):\n    deep = [deep]\n{code}")
    assert "the value is nested too deeply" in outcome.message
    assert run.session.alive


async def test_scratch_folder_with_many_small_files_hits_its_limit(run, monkeypatch):
    monkeypatch.setattr(folders, "MAX_ENTRIES", 1000)
    code = """
from pathlib import Path
number = 0
while True:
    Path(f'/scratch/{number}').write_text('')
    number += 1
"""
    folder = run.session.folder
    outcome = await run(code)
    assert isinstance(outcome, LimitReached), outcome
    assert "scratch space" in outcome.message or outcome.limit == "cpu"
    assert sum(1 for _ in folder.glob("scratch/*")) < 10_000
    await run.session.aclose()
    assert not folder.exists()


SHARED = {
    "an argument": "await shop.find(a=[s] * 300_000)",
    "nested sharing": "a = [s]\nfor _ in range(40):\n    a = [a] * 2\nawait shop.find(a)",
    "a file": "add_to_output_files('x.json', [s] * 300_000)",
    "objects": "from dataclasses import dataclass\n@dataclass\nclass A:\n    s: str\n"
    "await shop.find([A(s)] * 300_000)",
}


@pytest.mark.parametrize("name", SHARED)
async def test_shared_values_are_counted_before_copying(run, name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await run(f"s = 'y' * 1_000_000\n{SHARED[name]}")
    assert isinstance(outcome, Failed), outcome
    assert "takes more than" in outcome.message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


async def test_value_size_is_counted_as_encoded(run):
    outcome = await run("await shop.find(a='\\x01' * 60_000_000)")
    assert isinstance(outcome, Failed), outcome
    assert "takes more than" in outcome.message


async def test_repeatedly_refused_calls_hit_the_call_limit(run):
    code = """
s = '\\x01' * 25_000_000
while True:
    try:
        await shop.find(a=s)
    except ToolArgumentError:
        pass
"""
    outcome = await run(code)
    assert isinstance(outcome, LimitReached), outcome
    assert outcome.limit == "calls"


async def test_very_wide_csv_is_refused(run):
    code = "add_to_output_files('x.csv', [{f'k{i}': 1} for i in range(20_000)])"
    outcome = await run(code)
    assert isinstance(outcome, LimitReached), outcome
    assert (outcome.limit, "has more than" in outcome.message) == ("file", True)


async def test_oversized_result_is_shown_as_its_type(run):
    outcome = await run("s = 'y' * 1_000_000\n[s] * 300_000")
    assert outcome.value == "<list, too large>"
