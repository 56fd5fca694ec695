"""Input and output files through the agent, in the local sandbox and in Monty."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from delf import Agent, CallContext, ConfigurationError, ToolDefinitionError, tool
from delf.events import Event, FileWritten, ToolsSelected
from delf_devkit.testing.hosts import TestHost
from delf_devkit.testing.models import ScriptedModel
from delf_sandbox.inputs import visible_path


@pytest.fixture(params=["local", "monty"])
def sandbox(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def run(delf_host: TestHost, scripted_model: ScriptedModel, events: list[Event]) -> Any:
    """Return a function that runs scripts one after another, and returns the response."""

    def run(*scripts: str, sandbox: str = "local", tools: Any = (), **options: Any) -> Any:
        scripted_model.writes(*scripts)
        given = {"llm": "scripted", "sandbox": sandbox, "host": delf_host, **options}
        return asyncio.run(_run(Agent(tools=tools, **given), events))

    return run


async def _run(agent: Agent, events: list[Event]) -> Any:
    async with agent:
        return await agent.arun("x", listeners=[events.append])


@pytest.fixture
def events() -> list[Event]:
    """Return the events of the runs so far."""
    return []


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Make two tables with the same file name, and a text file."""
    made = {"a/sales.csv": "n,v\n1,x\n", "b/sales.csv": "n,v\n2,y\n", "notes é.txt": "Grüße"}
    for name, text in made.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return [str(tmp_path / name) for name in made]


# -- input files ----------------------------------------------------------------------------


def test_listed_paths_can_be_opened_in_the_sandbox(run, sandbox, inputs, scripted_model):
    response = run(
        "listed = await files.list()\n"
        "print([open(f['path']).read() for f in listed])\n"
        "print([f['name'] for f in listed])",
        sandbox=sandbox,
        files=inputs,
    )
    assert response.error is None
    contents, names = response.text.splitlines()
    assert contents == "['n,v\\n1,x\\n', 'n,v\\n2,y\\n', 'Grüße']"
    assert names == "['sales.csv', 'sales-2.csv', 'notes é.txt']"
    shown = scripted_model.prompts[0].partition("Input files:\n")[2].splitlines()[:3]
    assert [line.partition(": ")[0] for line in shown] == [
        "- sales.csv (8 bytes)",
        "- sales-2.csv (8 bytes)",
        "- notes é.txt (7 bytes)",
    ]
    where = [line.partition(": ")[2] for line in shown]
    expected = inputs
    if sandbox == "monty":
        expected = [visible_path(path) for path in inputs]
    assert where == [f"open({path!r})" for path in expected]


def test_files_read_is_recorded_as_a_tool_call(run, sandbox, inputs):
    response = run(
        "rows = await files.read('sales-2.csv', desc='the second')\nprint(rows[0]['v'])",
        sandbox=sandbox,
        files=inputs,
    )
    assert response.text == "y"
    (call,) = response.trace.tool_calls
    assert (call.name, call.status, call.result) == ("files.read", "ok", [{"n": "2", "v": "y"}])
    assert call.description == "the second"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "kind", "message"),
    [
        ("await files.read('/etc/passwd')", "ToolArgumentError", "there is no input file"),
        ("await files.read('sales.cvs')", "ToolArgumentError", "did you mean 'sales.csv'"),
        ("await files.write('a', 'b')", "ToolNotAllowed", "there is no tool 'files.write'"),
        ("await files.read('book.xlsx')", "ToolError", "delf plugins install 'files[excel]'"),
    ],
)
def test_unreadable_file_is_an_error(
    run, inputs, tmp_path, delf_host, monkeypatch, script, kind, message
):
    (tmp_path / "book.xlsx").write_bytes(b"PK")
    host = delf_host
    if "xlsx" in script:
        monkeypatch.setitem(sys.modules, "openpyxl", None)
        host = TestHost.discover(environ={})
        model = ScriptedModel().writes(script)
        host.provide(model.spec, model.factory)
    files = [*inputs, str(tmp_path / "book.xlsx")]
    response = run(script, files=files, retry_count=0, host=host)
    assert response.error is not None
    assert message in response.error
    (call,) = response.trace.tool_calls
    assert message in call.error


def test_files_connection_exists_only_with_input_files(run, scripted_model):
    response = run("print('files' in globals())")
    assert response.text == "False"
    assert "class files" not in scripted_model.prompts[0]
    assert "Input files" not in scripted_model.prompts[0]


def test_prompt_shows_how_to_read_input_files(run, inputs, scripted_model):
    run("print(1)", files=inputs)
    assert "class files:  # " in scripted_model.prompts[0]
    assert "async def list() -> list[{" in scripted_model.prompts[0]
    assert "async def read(name: str, sheet: str | None = None" in scripted_model.prompts[0]


def test_prefilter_cannot_hide_the_files_connection(run, delf_host, inputs, events):
    @tool(confirm=False)
    def add(a: int) -> int:
        """Add."""
        return a

    from delf.protocols.prefilter import Selection
    from delf.specs import PrefilterSpec

    class Nothing:
        async def select(self, task, catalog, ask):
            assert [entry.name for entry in catalog] == ["add"]
            return Selection(names=frozenset())

    spec = PrefilterSpec(name="nothing", summary="", factory="a:b")
    delf_host.provide(spec, Nothing)
    response = run(
        "print(len(await files.list()))", tools=[add], files=inputs, prefilter_mode="nothing"
    )
    assert response.text == "3"
    (chosen,) = (event for event in events if isinstance(event, ToolsSelected))
    assert chosen.actions == ()


def test_tool_named_files_is_refused(run):
    with pytest.raises(ToolDefinitionError, match="cannot be named 'files'"):
        run("print(1)", tools=[tool(name="files")(lambda: None)])


@pytest.mark.parametrize("name", ["", "missing.csv"])
def test_input_path_that_is_not_a_file_stops_the_start(run, tmp_path, name):
    with pytest.raises(ConfigurationError, match="input file"):
        run("print(1)", files=[str(tmp_path / name)])


# -- open() ---------------------------------------------------------------------------------


def test_input_files_are_read_only(run, inputs):
    response = run(f"open({inputs[0]!r}, 'a')", files=inputs, retry_count=0)
    assert "is an input file and can only be read" in response.error
    assert Path(inputs[0]).read_text() == "n,v\n1,x\n"


def test_bare_name_resolves_to_scratch_before_inputs(run, inputs):
    response = run(
        "print(open('sales.csv').read())\n"
        "with open('sales.csv', 'w') as file: file.write('scratch')\n"
        "print(open('sales.csv').read())",
        files=inputs,
    )
    assert response.text == "n,v\n1,x\n\nscratch"
    assert Path(inputs[0]).read_text() == "n,v\n1,x\n"


def test_bare_file_name_works_with_any_open_function(run, inputs):
    """Monty has its own ``open``; there, bare names are scratch files."""
    response = run(
        "import os, csv\nfrom pathlib import Path\n"
        "path = Path('notes é.txt')\n"
        "print(path.read_text(), path.exists(), open('notes é.txt').read())\n"
        "with open('long.csv', 'w') as file: file.write('n\\n' + 'x' * 200_000)\n"
        "print(len(next(csv.DictReader(open('long.csv')))['n']))",
        sandbox="local",
        files=inputs,
    )
    assert (response.error, response.text) == (None, "Grüße True Grüße\n200000")
    assert set(response.files) == {"long.csv"}, "an input file is not an output file"


def test_names_of_the_prompt_can_be_opened(run, inputs, tmp_path):
    """Also the name of a second file of the same name, and of a link to a file."""
    link = tmp_path / "latest.csv"
    (tmp_path / "c.csv").write_text("n,v\n3,z\n")
    link.symlink_to(tmp_path / "c.csv")
    reading = (
        "for name in ('sales.csv', 'sales-2.csv', 'latest.csv'): print(open(name).read()[4:7])"
    )
    response = run(reading, files=[*inputs, str(link)])
    assert (response.error, response.text) == (None, "1,x\n2,y\n3,z")


@pytest.mark.parametrize("mode", ["r", "w"])
def test_script_cannot_open_other_files(run, tmp_path, inputs, mode):
    (tmp_path / "other").write_text("secret")
    script = f"open({str(tmp_path / 'other')!r}, {mode!r})"
    response = run(script, files=inputs, retry_count=0)
    assert "outside the folders that scripts may" in response.error


# -- output files ---------------------------------------------------------------------------


def test_handed_over_files_are_in_the_response(run, sandbox, tmp_path, events):
    response = run(
        "add_to_output_files('t.txt', 'é')\n"
        "add_to_output_files('sub/d.json', {'a': [1, None]})\n"
        "await add_to_output_files('r.csv', [{'a': 1, 'b': 'x,y'}])\n"
        "add_to_output_files('r.csv', [{'a': 2}])\n"
        "add_to_output_files('b.bin', b'\\x00\\xff')\nprint('ok')",
        sandbox=sandbox,
        output_dir=str(tmp_path / "out"),
    )
    out = tmp_path / "out"
    assert (response.error, response.text) == (None, "ok")
    assert response.files == {n: str(out / n) for n in ("t.txt", "sub/d.json", "r.csv", "b.bin")}
    assert (out / "t.txt").read_text() == "é"
    assert json.loads((out / "sub/d.json").read_text()) == {"a": [1, None]}
    assert (out / "r.csv").read_text() == "a\n2\n"
    assert (out / "b.bin").read_bytes() == b"\x00\xff"
    written = [e for e in events if isinstance(e, FileWritten)]
    assert [event.label for event in written] == ["t.txt", "sub/d.json", "r.csv", "r.csv", "b.bin"]
    assert sorted(path.name for path in out.rglob("*")) == [
        "b.bin",
        "d.json",
        "r.csv",
        "sub",
        "t.txt",
    ]


def test_task_without_a_folder_gets_its_own(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    paths = [run("add_to_output_files('a', 'x')").files["a"] for _ in range(2)]
    assert paths[0] != paths[1]
    run("print('no file, no folder')")
    assert len([path for path in tmp_path.iterdir() if path.name.startswith("delf-out-")]) == 2


def test_output_files_of_a_failed_script_are_kept(run, tmp_path):
    response = run("add_to_output_files('a', 'x')\n1 / 0", output_dir=str(tmp_path), retry_count=0)
    assert not response.status
    assert response.files == {"a": str(tmp_path / "a")}


def test_unwritable_output_file_fails_the_script(run, tmp_path):
    response = run(
        "add_to_output_files('a', 'x')\nadd_to_output_files('a/b', 'x')\nprint('done')",
        output_dir=str(tmp_path),
        retry_count=0,
    )
    assert not response.status
    assert "'a/b' cannot be written" in response.error
    assert list(response.files) == ["a"]


def test_file_limits_are_reported(run, tmp_path):
    limits = {"file_bytes": 1000, "total_file_bytes": 2500}
    script = "for n in range(4): add_to_output_files(f'{n}', 'x' * 900)"
    response = run(script, output_dir=str(tmp_path), sandbox_config=limits, retry_count=0)
    assert "the output files together pass 2,500 bytes" in response.error
    assert len(response.files) == 2
    response = run("add_to_output_files('big', 'x' * 1001)", sandbox_config=limits, retry_count=0)
    assert "'big' has 1,001 bytes; at most 1,000 are allowed" in response.error


def test_call_can_read_files_just_written_by_its_script(
    run: Any, sandbox: str, tmp_path: Path
) -> None:
    @tool(effect="read", confirm=False)
    async def written(context: CallContext) -> int:
        """The number of files."""
        return len(context.output_files)

    script = (
        "for n in range(20):\n    add_to_output_files(f'{n}.txt', 'x' * 100_000)\n"
        "print(await written())"
    )
    out = str(tmp_path / "out")
    assert run(script, sandbox=sandbox, tools=[written], output_dir=out).text == "20"
