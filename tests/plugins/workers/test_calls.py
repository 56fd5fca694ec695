"""Calls of workers: tools, limits and answers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delf import Approved, tool
from delf import events as ev
from delf.errors import ToolRefusedError
from delf_filesystem import Filesystem
from delf_workers.attachments import AttachedFile, ReadableFile, copy_to


async def test_worker_runs_with_its_own_instructions(bench: Any):
    bench.worker("brief", "description: Says it in a word.", "Be brief.")
    bench.answers("what it is", "print('tea')")
    response = await bench.run("print(await workers.call('brief', 'what it is'))")
    assert response.text == "tea"
    (child,) = bench.children
    assert (child.task, child.worker) == ("what it is", "brief")
    assert child.parent == response.trace.task_id
    asked = next(r for r in bench.model.requests if "what it is" in r.messages[-1].text)
    assert any(m.role == "system" and "Be brief." in m.text for m in asked.messages)
    assert "workers" not in "\n".join(m.text for m in asked.messages), "it has no tools"


async def test_prompt_lists_the_workers(bench: Any):
    bench.worker("brief", "description: Says it in a word.\ninputs: {tone: {default: dry}}")
    bench.worker("wrong", "nothing: 1")
    await bench.run("print(1)")
    prompt = bench.model.prompts[0]
    assert "- brief: Says it in a word.; inputs: tone (string)?" in prompt
    assert "- wrong: its file is invalid, and it cannot be called" in prompt


async def test_inputs_are_inserted_into_the_instructions(bench: Any):
    bench.worker(
        "write",
        "inputs: {topic: {description: What about}, words: {type: integer, default: 9}}",
        "Write {{ words }} words about {{topic}}.",
    )
    bench.answers("Write 9 words about tea.", "print('ok')")
    code = """
    print(await workers.call('write', 'go', inputs={'topic': 'tea'}))
    for wrong in ({}, {'topic': 1}, {'topic': 'x', 'word': 1}):
        try:
            await workers.call('write', 'go', inputs=wrong)
        except ToolError as error:
            print(error)
    """
    response = await bench.run(code)
    assert response.text.splitlines() == [
        "ok",
        "worker 'write' needs the input 'topic'",
        "worker 'write', input 'topic': 1 is not of type \"string\"",
        "worker 'write' has no input 'word'; its inputs: topic, words; did you mean 'words'?",
    ]


async def test_worker_calls_allowed_actions_only(bench: Any):
    bench.worker("sum-up")
    bench.worker("send")
    bench.answers("sum it", "print('x')")
    code = """
    print(await workers.call('sum-up', 'sum it'))
    for name in ('send', '../send', 'nothing'):
        try:
            await workers.call(name, 'x')
        except ToolError as error:
            print(error)
    """
    response = await bench.run(code, bench.workers(allow_workers=["sum*", "n*"]))
    first, *others = response.text.splitlines()
    assert first == "x"
    assert "worker 'send' may not be called here. Workers: sum-up" in others[0]
    assert "may not be called" in others[1]
    assert "there is no worker 'nothing'" in others[2]


@pytest.mark.parametrize(
    ("patterns", "fits"),
    [("[scripted]", True), ("['gpt-*', 'scr*']", True), ("['gpt-*']", False)],
)
async def test_worker_is_limited_to_compatible_models(bench: Any, patterns: Any, fits: Any):
    bench.worker("brief", f"compatible_models: {patterns}")
    bench.answers("hi there", "print('hi')")
    response = await bench.run("print(await workers.call('brief', 'hi there'))")
    assert response.status is fits
    if not fits:
        assert "worker 'brief' is for models like gpt-*" in response.error


async def test_worker_can_have_its_own_model(bench: Any):
    bench.worker("brief", "model: scripted:small\ncompatible_models: ['scripted:*']")
    bench.answers("hi there", "print('hi')")
    response = await bench.run("print(await workers.call('brief', 'hi there'))")
    assert response.text == "hi"
    asked = {e.model for e in bench.of(ev.ModelCalled) if e.task_id == bench.children[0].task_id}
    assert asked == {"scripted:small"}


# -- answers ----------------------------------------------------------------------------------------

SHAPE = """
result:
  type: object
  required: [title, pages]
  properties: {title: {type: string}, pages: {type: integer}}
limits: {retries: 1}
"""


async def test_answer_with_a_declared_schema_is_data(bench: Any):
    bench.worker("look", SHAPE)
    bench.answers("look at it", 'import json\nprint(json.dumps({"title": "Tea", "pages": 3}))')
    response = await bench.run(
        "r = await workers.call('look', 'look at it')\nprint(r['pages'] + 1)"
    )
    assert response.text == "4"


async def test_invalid_answer_is_returned_to_the_worker(bench: Any):
    @tool(confirm=False, effect="write")
    def note(text: str) -> None:
        """Note something."""
        noted.append(text)

    noted: list[str] = []
    bench.worker("look", SHAPE + "connections: [note]")
    bench.answers(
        "look at it",
        'await note("once")\nfound = {"title": "Tea"}\nprint(found)',
        'import json\nprint(json.dumps({**found, "pages": 3}))',
    )
    response = await bench.run("print(await workers.call('look', 'look at it'))", note)
    assert response.text == "{'title': 'Tea', 'pages': 3}"
    assert noted == ["once"]
    message = bench.model.requests[-1].messages[-1].text
    assert "its answer is refused: it is not one JSON value" in message


async def test_worker_failure_raises_in_the_call(bench: Any):
    bench.worker("brief")
    bench.answers("do it", "raise ValueError('no tea')")
    response = await bench.run(
        "try:\n    await workers.call('brief', 'do it')\nexcept ToolError as e:\n    print(e)"
    )
    assert "worker 'brief' failed" in response.text
    assert "no tea" in response.text


# -- files ------------------------------------------------------------------------------------------


async def test_attachments_become_input_files_of_the_worker(bench: Any):
    (bench.folder / "docs").mkdir()
    (bench.folder / "docs/a.md").write_text("A")
    (bench.folder / "b.md").write_text("B")
    bench.worker("read")
    bench.answers(
        "read them", "print(open('a.md').read() + open('b.md').read() + open('c.md').read())"
    )
    response = await bench.run(
        "add_to_output_files('c.md', 'C')\n"
        "print(await workers.call('read', 'read them', ['docs/a.md', 'b.md', 'c.md']))",
        Filesystem(name="disk", roots={"docs": str(bench.folder / "docs")}),
        files=[str(bench.folder / "b.md")],
        output_dir=str(bench.folder / "out"),
    )
    assert response.text == "ABC"


async def test_attachments_with_the_same_name_are_all_kept(bench: Any):
    paths = ["x/a.md", "y/a-3.md", "z/a.md"]
    for path in paths:
        (bench.folder / path).parent.mkdir()
        (bench.folder / path).write_text(path)
    bench.worker("read")
    bench.answers("read them", "import os\nprint(len(os.listdir('.')))")
    response = await bench.run(
        f"print(await workers.call('read', 'read them', {['all/' + path for path in paths]}))",
        Filesystem(name="disk", roots={"all": str(bench.folder)}),
    )
    assert response.text == "3"


def test_refused_copies_of_attachments_are_removed(tmp_path: Path):
    file = ReadableFile(name="a.md", size=2, read=lambda: b"much more")
    context: Any = SimpleNamespace(read_file=lambda path, max_bytes, read: read())
    with pytest.raises(ToolRefusedError, match="has grown"):
        copy_to(tmp_path / "copies", [AttachedFile("a.md", file)], 5, context)
    assert list(tmp_path.iterdir()) == []


async def test_worker_accepts_attachments_by_its_policy(bench: Any):
    for name, text in (("a.md", "A" * 60), ("b.md", "B" * 60), ("c.pdf", "C")):
        (bench.folder / name).write_text(text)
    bench.worker("read", "attachments: {max_count: 2, max_total_bytes: 100, suffixes: [md]}")
    code = """
    for given in (['a.md', 'b.md', 'c.pdf'], ['a.md', 'b.md'], ['c.pdf'], ['d.md']):
        try:
            await workers.call('read', 'read them', given)
        except ToolError as error:
            print(error)
    """
    files = [str(bench.folder / name) for name in ("a.md", "b.md", "c.pdf")]
    response = await bench.run(code, files=files)
    count, size, suffix, missing = response.text.splitlines()
    assert "takes at most 2 attachments, 3 were given" in count
    assert "of at most 100 bytes together, these have 120" in size
    assert "does not take 'c.pdf'. It takes: .md" in suffix
    assert "there is no file 'd.md'" in missing
    assert bench.children == []


async def test_approval_lists_attachments_with_name_size_and_type(bench: Any):
    (bench.folder / "docs").mkdir()
    (bench.folder / "docs/a.md").write_text("A" * 60)
    disk = Filesystem(
        name="disk", roots={"docs": {"root": str(bench.folder / "docs"), "read_approval": True}}
    )
    bench.worker("read")
    bench.answers("read it", "print(open('a.md').read()[:1])")
    asked: list[Any] = []

    def person(request: Any):
        asked.append((request.action, request.reason, request.preview))
        return True

    response = await bench.run(
        "print(await workers.call('read', 'read it', ['docs/a.md']))", disk, on_confirm=person
    )
    assert response.text == "A"
    preview = "attachments:\n  docs/a.md, 60 bytes, text/markdown"
    assert asked == [("workers.call", "docs needs approval before each read", preview)]


async def test_unreadable_files_cannot_be_attached(bench: Any):
    (bench.folder / "docs").mkdir()
    (bench.folder / "docs/a.md").write_text("A")
    (bench.folder / "docs/.env").write_text("A")
    roots = {"docs": str(bench.folder / "docs")}
    bench.worker("read")
    code = """
    for path in ('docs/../a', 'docs/.env', 'docs/nothing.md'):
        try:
            print(await workers.call('read', 'read it', [path]))
        except ToolError as error:
            print('no')
    """
    response = await bench.run(code, Filesystem(name="disk", roots=roots))
    assert response.text.split() == ["no"] * 3
    listing = Filesystem(name="disk", roots=roots, allow=["list_files"])
    response = await bench.run(code.replace("docs/nothing", "docs/a"), listing)
    assert response.text.split() == ["no"] * 3


# -- limits and approvals -----------------------------------------------------------------------------


async def test_exhausted_worker_budget_fails_only_the_worker(bench: Any):
    bench.worker("dear", "budget_usd: 1\nlimits: {retries: 5}")
    bench.answers("do it", "raise ValueError('no')", cost=0.4)
    response = await bench.run(
        "try:\n    await workers.call('dear', 'do it')\nexcept ToolError as e:\n    print(e)",
        budget_usd=10.0,
    )
    assert "budget of $1" in response.text
    assert response.cost_usd == pytest.approx(0.8), "the third answer would not fit"


async def test_number_of_children_is_limited(bench: Any):
    bench.worker("one")
    bench.answers("do it", "print(1)")
    response = await bench.run(
        "done = 0\ntry:\n    while True:\n        await workers.call('one', 'do it')\n"
        "        done += 1\nexcept ToolError as error:\n    print(done, error)",
        max_children=3,
    )
    assert response.text.startswith("3 workers.call is not made: the task has had 3 child tasks")


async def test_request_names_the_asking_worker(bench: Any):
    @tool(effect="write")
    def pay(n: int) -> str:
        """Pay."""
        return f"paid {n}"

    bench.worker("payer", "connections: [pay]")
    bench.answers("pay it", "print(await pay(1))")
    asked: list[Any] = []

    def person(request: Any):
        asked.append((request.worker, request.action, request.task))
        return Approved()

    response = await bench.run(
        "print(await workers.call('payer', 'pay it'))", pay, on_confirm=person
    )
    assert response.text == "paid 1"
    assert asked == [("payer", "pay", "pay it")]
    assert [e.worker for e in bench.of(ev.ApprovalRequested)] == ["payer"]


async def test_remembered_approval_of_the_parent_excludes_workers(bench: Any):
    """A worker's connection of the same name may lead to another service."""
    for name in ("mine", "its"):
        (bench.folder / name).mkdir()
    mine = Filesystem(
        name="disk", roots={"out": {"root": str(bench.folder / "mine"), "mode": "rw"}}
    )
    bench.worker(
        "writer",
        f"""
        connections:
          disk:
            type: filesystem
            roots: {{out: {{root: {bench.folder}/its, mode: rw}}}}
        """,
    )
    write = "await disk.write_file('out/a.md', 'x')"
    bench.answers("write it", f"{write}\nprint('done')")
    asked: list[Any] = []

    def person(request: Any):
        asked.append(request.worker)
        return Approved(remember="until_revoked")

    code = f"{write}\n{write}\n" + "await workers.call('writer', 'write it')\n" * 2
    response = await bench.run(code, mine, on_confirm=person)
    assert response.status, response.error
    assert asked == [None, "writer"]
    assert (bench.folder / "its/a.md").read_text() == "x"
