"""A corpus of honest scripts behaves as it would outside: output, calls, files, mails, reruns."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from delf.protocols.sandbox import Done, Raised, Rerun, ToolNames
from support.scripting import NotingHost, local_session, session_spec
from support.workspace import ROOT

CORPUS = ROOT.parent / "shared" / "data" / "sandbox"
if not CORPUS.is_dir():
    pytest.skip("needs ../shared", allow_module_level=True)

ENTRIES = [
    entry
    for entry in json.loads((CORPUS / "benign/index.json").read_text("utf-8"))["scripts"]
    if (CORPUS / "benign" / entry["file"]).exists()
]
TOOLS = (
    ToolNames(name="sql", methods=("query",)),
    ToolNames(name="gmail", methods=("read", "send")),
    ToolNames(name="add"),
)


@pytest.fixture(scope="module")
def stub_tools():
    spec = importlib.util.spec_from_file_location("stub_tools", CORPUS / "stub_tools.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answering(tool, failure):
    async def call(*args, **kwargs):
        try:
            return await tool(*args, **kwargs)
        except failure as error:
            return Raised("ToolError", str(error))

    return call


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: Path(entry["file"]).stem)
async def test_behaves_as_outside(entry, stub_tools):
    env = stub_tools.make_tools()
    real = {
        f"{tool.name}.{method}".rstrip("."): getattr(env.namespace[tool.name], method or "__call__")
        for tool in TOOLS
        for method in tool.methods or ("",)
    }
    host = NotingHost({name: answering(tool, stub_tools.ToolError) for name, tool in real.items()})
    async with local_session(session_spec(TOOLS)) as session:
        for path in (CORPUS / "workspace").iterdir():
            shutil.copyfile(path, Path(session.process.scratch, path.name))
        code = (CORPUS / "benign" / entry["file"]).read_text("utf-8")
        outcome = await session.execute(code, host)
    env._db.close()
    assert isinstance(outcome, Done | Rerun), outcome
    assert host.text == entry["expected_stdout"]
    assert {name: data.decode() for name, data in host.files.items()} == entry["expected_files"]
    assert env.calls == entry["tool_calls"]
    assert env.sent == entry["expected_sent"]
    expected = [(r["context"], r["remaining"]) for r in entry["expected_reruns"]]
    reruns = [(outcome.context, outcome.remaining)] if isinstance(outcome, Rerun) else []
    assert reruns == expected
