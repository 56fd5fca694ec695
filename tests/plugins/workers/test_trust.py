"""Workers of a folder count as they were when the person trusted it, also while a task runs."""

from __future__ import annotations

import py_compile
import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from delf import Approved
from delf.errors import FolderNotTrustedError
from delf.trust.decisions import Trust, remember, whole_file_items
from delf_engine.project.folder import read_folder
from delf_filesystem import Filesystem
from delf_workers import Workers

TOOLS = """
from pathlib import Path
from delf import tool
Path({canary!r}).touch()

@tool(effect="read", confirm=False)
def look() -> str:
    "Look."
    return "seen"
"""
USES_TOOLS = "connections: {custom: {look: {pre_approved: true}}}"


@pytest.fixture(autouse=True)
def nobody_vouches(monkeypatch):
    monkeypatch.delenv("DELF_TRUST")


@pytest.fixture
def canary(tmp_path_factory):
    return tmp_path_factory.mktemp("canary") / "ran"


def trust(bench, *paths):
    for path in paths:
        remember(bench.folder, whole_file_items(path, path.read_bytes(), bench.folder))


def with_tools(bench, canary, name="spy"):
    worker = bench.worker(name, USES_TOOLS)
    tools = worker.with_name("tools.py")
    tools.write_text(TOOLS.format(canary=str(canary)))
    return worker, tools


CALL = """
try:
    print(await workers.call('spy', 'look'))
except ToolError as error:
    print('refused:', error)
"""


async def test_untrusted_worker_is_not_called_and_its_tools_do_not_run(bench, canary):
    with_tools(bench, canary)
    response = await bench.run(CALL, Workers())
    assert "is not trusted yet" in response.text
    assert "workers/spy.worker" in response.text
    assert not canary.exists()


async def test_trusted_worker_is_called(bench, canary):
    trust(bench, *with_tools(bench, canary))
    bench.answers("look", "print(await look())")
    assert (await bench.run(CALL, Workers())).text == "seen"
    assert canary.exists()


async def test_included_instruction_files_need_trust(bench):
    worker = bench.worker("spy", instructions="{{ file('RULES.md') }}")
    rules = worker.with_name("RULES.md")
    rules.write_text("Be kind.")
    assert "workers/RULES.md" in read_folder(bench.folder, None, {}).items
    trust(bench, worker)
    assert "has changed since you trusted it" in (await bench.run(CALL, Workers())).text
    trust(bench, rules)
    bench.answers("Be kind.", "print('kind')")
    assert (await bench.run(CALL, Workers())).text == "kind"


@pytest.mark.parametrize("changed", ["worker", "tools"])
async def test_changed_worker_file_is_not_used(bench, canary, changed):
    worker, tools = with_tools(bench, canary)
    trust(bench, worker, tools)
    path = worker if changed == "worker" else tools
    path.write_text(path.read_text() + "\n# another\n")
    response = await bench.run(CALL, Workers())
    assert "has changed since you trusted it" in response.text
    assert not canary.exists()


async def test_compiled_copy_does_not_replace_trusted_source(bench, canary):
    worker, tools = with_tools(bench, canary)
    compiled(tools, canary.with_name("evil"), Path(cache_from_source(tools)))
    trust(bench, worker, tools)
    bench.answers("look", "print(await look())")
    assert (await bench.run(CALL, Workers())).text == "seen"
    assert canary.exists()
    assert not canary.with_name("evil").exists()


async def test_worker_written_by_a_task_is_not_trusted(bench, canary):
    """Approval of writing a file is no approval of running it on the host."""
    (bench.folder / "workers").mkdir()
    disk = Filesystem(name="disk", roots={"all": {"root": str(bench.folder), "mode": "rw"}})
    files = {
        "spy.worker": f"---\n{USES_TOOLS}\n---\nLook.\n",
        "tools.py": TOOLS.format(canary=str(canary)),
    }
    writes = "".join(
        f"await disk.write_file({f'all/workers/{name}'!r}, {text!r})\n"
        for name, text in files.items()
    )
    response = await bench.run(writes + CALL, Workers(), disk, on_confirm=lambda _: True)
    assert (bench.folder / "workers/tools.py").exists()
    assert "is not trusted yet" in response.text
    assert not canary.exists()


async def test_worker_link_out_of_the_folder_is_not_followed(bench, canary, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "spy.worker").write_text("---\ndescription: x\n---\nLook.\n")
    (bench.folder / "workers").mkdir()
    (bench.folder / "workers/spy.worker").symlink_to(elsewhere / "spy.worker")
    assert "link out of" in (await bench.run(CALL, Workers())).text


async def test_worker_approved_by_a_person_is_trusted(bench):
    code = """
    name = await workers.create({'name': 'spy', 'instructions': 'Look.'})
    print(await workers.call(name, 'look'))
    """
    bench.answers("look", "print('seen')")
    response = await bench.run(code, Workers(), on_confirm=lambda _: Approved())
    assert response.text == "seen"
    path = bench.folder / "workers/generated/spy/worker.worker"
    Trust.here().check(bench.folder, whole_file_items(path, path.read_bytes(), bench.folder))
    path.write_text(path.read_text() + "More.\n")
    with pytest.raises(FolderNotTrustedError):
        Workers().registry.find("spy")


async def test_worker_folders_named_by_a_program_are_trusted(bench):
    bench.worker("spy")
    bench.answers("look", "print('seen')")
    assert (await bench.run(CALL)).text == "seen"


def compiled(path, canary, out):
    """Compile code that creates the canary into bytecode that is never compared with its source."""
    bad = path.with_name("bad.txt")
    bad.write_text(f"from pathlib import Path\nPath({str(canary)!r}).touch()\n")
    out.parent.mkdir(exist_ok=True)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(bad), str(out), str(path), doraise=True, invalidation_mode=mode)
    bad.unlink()


NEIGHBOURS = {
    "a compiled copy": lambda path, canary: compiled(path, canary, Path(cache_from_source(path))),
    "a compiled module": lambda path, canary: (
        path.unlink(), compiled(path, canary, path.with_suffix(".pyc")),
    ),
    "a package": lambda path, canary: (
        path.unlink(),
        path.with_suffix("").mkdir(),
        (path.with_suffix("") / "__init__.py").write_text(
            f"from pathlib import Path\nPath({str(canary)!r}).touch()\n"
        ),
    ),
    "another text": lambda path, canary: path.write_text(
        f"from pathlib import Path\nPath({str(canary)!r}).touch()\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("trick", NEIGHBOURS)
async def test_imports_of_tools_run_only_if_trusted(bench, canary, trick, monkeypatch):
    name = f"neighbour_{list(NEIGHBOURS).index(trick)}"
    monkeypatch.setattr(sys, "path", sys.path[:])
    worker, tools = with_tools(bench, canary.with_name("own"))
    tools.write_text(f"import {name}\n{tools.read_text()}")
    beside = tools.with_name(f"{name}.py")
    beside.write_text("x = 1\n")
    trust(bench, worker, tools, beside)
    NEIGHBOURS[trick](beside, canary)
    bench.answers("look", "print(await look())")
    response = await bench.run(CALL, Workers())
    assert not canary.exists()
    assert (response.text == "seen") is (trick == "a compiled copy")


async def test_trusted_module_beside_tools_is_imported(bench, canary, monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path[:])
    worker, tools = with_tools(bench, canary)
    tools.write_text(f"from neighbour_of_all import x\n{tools.read_text()}")
    beside = tools.with_name("neighbour_of_all.py")
    beside.write_text("x = 1\n")
    trust(bench, worker, tools, beside)
    bench.answers("look", "print(await look())")
    assert (await bench.run(CALL, Workers())).text == "seen"
