"""Rights of workers: their own connections; a created worker never has more than its creator."""

import json
import sys
import textwrap

import pytest

from delf import CallContext, tool
from delf.errors import EnvironmentKeyError
from delf_filesystem import Filesystem
from delf_workers import Workers
from delf_workers.rights import Workshop


def asks(answer=True):
    seen = []

    def person(request):
        seen.append(request)
        return answer

    return person, seen


def disk(bench, **more):
    for name in ("in", "out"):
        (bench.folder / name).mkdir(exist_ok=True)
    (bench.folder / "in/a.md").write_text("A")
    roots = {
        "in": str(bench.folder / "in"),
        "out": {"root": str(bench.folder / "out"), "mode": "rw", "write_approval": False},
    }
    return Filesystem(name="disk", roots=roots, **more)


def create(**spec):
    return f"print(await workers.create({json.dumps(spec)!s}))"


# -- files of the user ----------------------------------------------------------------------------


async def test_sandbox_paths_become_filesystem_roots(bench):
    disk(bench)
    bench.worker(
        "read",
        f"""
        sandbox:
          paths:
            input: {{root: {bench.folder}/in, mode: ro, suffixes: [.md]}}
        connections:
          filesystem: {{}}
        """,
    )
    bench.answers("read it", "print(await filesystem.read_file('input/a.md'))")
    response = await bench.run("print(await workers.call('read', 'read it'))")
    assert response.text == "A"


async def test_missing_variable_of_a_connection_is_reported_with_the_line_of_the_worker(bench):
    def connect(name: str, **options):
        raise EnvironmentKeyError("[connections.db] url: DB_URL is not set", variable="DB_URL")

    bench.worker("read", "connections: [db]")
    workers = bench.workers()
    workshop = Workshop(workers.registry, {}, connect, {}, Workers.for_worker)
    with pytest.raises(EnvironmentKeyError) as caught:
        workshop.tools_of(workers.registry.find("read"), workers)
    place = f"{bench.folder}/workers/read.worker, line 2: connections.db"
    assert str(caught.value) == f"{place}: [connections.db] url: DB_URL is not set"
    assert (caught.value.variable, caught.value.hint) == ("DB_URL", "export DB_URL=…")


async def test_concurrent_calls_share_the_connections_of_a_worker(bench, monkeypatch):
    (bench.folder / "sharedtools.py").write_text(
        textwrap.dedent(
            """
            import contextlib, threading
            from delf import Connection, action

            both_are_made = threading.Barrier(2, timeout=0.2)
            made, closed = [], []

            class Desk(Connection):
                "A desk."

                def __init__(self, **options):
                    super().__init__(**options)
                    made.append(self)
                    with contextlib.suppress(threading.BrokenBarrierError):
                        both_are_made.wait()

                @action(effect="read")
                def where(self) -> str:
                    "Say where."
                    return "attic"

                async def aclose(self):
                    closed.append(self)
            """
        )
    )
    monkeypatch.syspath_prepend(str(bench.folder))
    bench.worker("ask", "connections: {sharedtools.Desk: {}}")
    bench.answers("say the room", "print(await desk.where())")
    calls = "workers.call('ask', 'say the room'), workers.call('ask', 'say the room')"
    response = await bench.run(f"import asyncio; print(await asyncio.gather({calls}))")
    assert response.text == "['attic', 'attic']", response.error
    module = sys.modules["sharedtools"]
    assert len(module.made) == 1
    assert module.closed == module.made


async def test_worker_uses_a_connection_class_beside_its_file(bench, monkeypatch):
    (bench.folder / "ourtools.py").write_text(
        textwrap.dedent(
            """
            from delf import Connection, action
            from delf.settings import PluginSettings
            from pydantic import Field

            class DeskSettings(PluginSettings):
                room: str = Field(description="Where.")

            class Desk(Connection[DeskSettings]):
                "A desk."

                @action(effect="read")
                def where(self) -> str:
                    "Say where."
                    return self.settings.room
            """
        )
    )
    monkeypatch.syspath_prepend(str(bench.folder))
    bench.worker(
        "ask",
        """
        connections:
          ourtools.Desk: {room: attic}
          custom:
            twice: {pre_approved: true}
            thrice: {}
        """,
    )
    (bench.folder / "workers/tools.py").write_text(
        "from delf import tool\n"
        "@tool\ndef twice(n: int) -> int:\n    'Twice.'\n    return 2 * n\n"
        "@tool\ndef thrice(n: int) -> int:\n    'Thrice.'\n    return 3 * n\n"
        "@tool\ndef other(n: int) -> int:\n    'Other.'\n    return n\n"
    )
    bench.answers(
        "ask it", "print(await desk.where(), await twice(2), await thrice(2))\nawait other(1)"
    )
    person, seen = asks()
    response = await bench.run("print(await workers.call('ask', 'ask it'))", on_confirm=person)
    assert [request.action for request in seen] == ["thrice"]
    assert "NameError" in response.error, "only what is named is there"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("connections: {disc: {}}", "line 2: connections.disc: unknown connection"),
        ("connections: {nowhere.Tool: {}}", "line 2: connections.nowhere.Tool: there is no"),
        ("connections: {os.path.join: {}}", "is not a class of connections"),
        ("connections: {disk: {type: filesystem, rots: 1}}", "line 2: connections.disk"),
        ("sandbox: {paths: {a: ./a}}", "line 2: sandbox.paths: the paths need"),
        ("connections: {custom: {x: {}}}", "tools.py"),
        (
            "connections: {workers: {allow: x}}",
            "connections.workers: the only setting is allow_workers",
        ),
        ("connections: {workers: {allow_workers: 5}}", "the only setting is allow_workers"),
        ("connections: {workers: {allow_workers: {a: b}}}", "the only setting is allow_workers"),
        ("connections: {workers: {allow_workers: }}", "the only setting is allow_workers"),
        ("connections: {disk: {allow: [read_flie]}}", "read_flie"),
    ],
)
async def test_excessive_right_of_a_worker_is_reported_with_its_line(bench, head, message):
    bench.worker("one", head)
    response = await bench.run("await workers.call('one', 'x')", disk(bench))
    assert not response.status
    assert message in response.error


@pytest.mark.parametrize("options", ["true", "5", "text", "[pre_approved]"])
async def test_options_of_a_function_must_be_a_table(bench, options):
    bench.worker("one", f"connections: {{custom: {{twice: {options}}}}}")
    (bench.folder / "workers/tools.py").write_text(
        "from delf import tool\n@tool\ndef twice(n: int) -> int:\n    'Twice.'\n    return 2 * n\n"
    )
    response = await bench.run("await workers.call('one', 'x')", disk(bench))
    assert "connections.custom.twice: the only setting is pre_approved" in response.error


async def test_worker_may_be_given_fewer_actions(bench):
    bench.worker("read", "connections: {disk: {allow: [read_file]}}")
    bench.answers("try it", "await disk.write_file('out/a.md', 'x')")
    response = await bench.run("await workers.call('read', 'try it')", disk(bench))
    assert "disk.write_file is not allowed here" in response.error


# -- made by tasks -----------------------------------------------------------------------------------


async def test_worker_is_created_after_approval(bench):
    person, seen = asks()
    spec = {"name": "reader", "description": "Reads.", "connections": ["disk"]}
    bench.answers("read it", "print(await disk.read_file('in/a.md'))")
    code = create(**spec, instructions="Read in/a.md.")
    code += "\nprint(await workers.call('reader', 'read it'))"
    response = await bench.run(code, disk(bench), on_confirm=person)
    assert response.text == "reader\nA"
    (request,) = seen
    assert request.action == "workers.create"
    assert "Read in/a.md." in request.preview
    path = bench.folder / "workers/generated/reader/worker.worker"
    assert path.read_text() == request.preview


CALLS = "connections: {workers: {allow_workers: ['*']}}"


@pytest.mark.parametrize("confirm", [True, ["call"], "call"])
async def test_nested_worker_calls_ask_for_approval(bench, confirm):
    bench.worker("outer", CALLS, "Outer.")
    bench.worker("inner", "", "Inner.")
    bench.answers("Inner.", "print('in')")
    bench.answers("Outer.", "print(await workers.call('inner', 'go'))")
    person, seen = asks()
    code = "print(await workers.call('outer', 'go'))"
    response = await bench.run(code, bench.workers(confirm=confirm), on_confirm=person)
    assert response.text.strip() == "in"
    assert [request.arguments["worker"] for request in seen] == ["outer", "inner"]


async def test_disallowed_action_stays_disallowed_in_workers(bench):
    bench.worker("outer", CALLS, "Outer.")
    bench.answers("Outer.", create(name="x", instructions="y"))
    person, seen = asks()
    code = "print(await workers.call('outer', 'go'))"
    response = await bench.run(code, bench.workers(allow=["call"]), on_confirm=person)
    assert "workers.create is not allowed here" in response.error
    assert not seen


async def test_action_is_given_the_name_of_the_calling_worker(bench):
    @tool(effect="read", confirm=False)
    def who(context: CallContext) -> str:
        """Tell who calls."""
        return str(context.worker)

    bench.worker("outer", "connections: [who]", "Outer.")
    bench.answers("Outer.", "print(await who())")
    code = "print(await who(), await workers.call('outer', 'go'))"
    response = await bench.run(code, who)
    assert response.status, response.error
    assert response.text.split() == ["None", "outer"]


async def test_rejected_worker_is_not_created(bench):
    person, _ = asks(False)
    response = await bench.run(create(name="x", instructions="y"), on_confirm=person)
    assert not response.status
    assert not (bench.folder / "workers/generated").exists()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "../x"}, "not a name of a worker"),
        ({"name": "brief"}, "there is a worker 'brief' already"),
        ({"name": "x", "connections": ["sql"]}, "which does not have 'sql'"),
        ({"name": "x", "connections": ["os.path"]}, "which does not have 'os.path'"),
        ({"name": "x", "instructions": "{{ y }}"}, "there is no input 'y'"),
        ({"name": "x", "instructions": " "}, "there are no instructions"),
        ({"name": "x", "result": {"type": "thing"}}, "not a JSON Schema"),
        ({"name": "x", "model": "gpt-5.5"}, "model"),
        ({"name": "x", "maker": "brief"}, "maker"),
        ({"name": "x", "description": "a\n---\nmodel: gpt"}, None),
    ],
)
async def test_create_refuses_invalid_workers(bench, spec, message):
    bench.worker("brief")
    person, seen = asks()
    code = create(**{"instructions": "Do it.", **spec})
    response = await bench.run(code, disk(bench), on_confirm=person)
    if message is None:
        assert response.status
        found = bench.workers().registry.find("x")
        assert (found.model, found.description) == (None, spec["description"])
    else:
        assert not response.status
        assert message in response.error
        assert not seen, "nobody is asked about what cannot be"


async def test_created_worker_has_the_rights_of_its_maker(bench):
    """A worker with fewer rights makes one, and the parent with more rights calls it."""
    whole = disk(bench)
    bench.worker(
        "maker", "connections: {disk: {allow: [read_file]}, workers: {allow_workers: [n*]}}"
    )
    spec = {"name": "new", "instructions": "Do it.", "connections": ["disk"]}
    bench.answers("make it", create(**spec))
    bench.answers("write it", "await disk.write_file('out/a.md', 'x')")
    person, _ = asks()
    code = "await workers.call('maker', 'make it')\nawait workers.call('new', 'write it')"
    response = await bench.run(code, whole, on_confirm=person)
    assert "disk.write_file is not allowed here" in response.error
    assert bench.workers().registry.find("new").maker == "maker"
    assert not (bench.folder / "out/a.md").exists()


async def test_created_worker_loses_the_rights_that_its_maker_loses(bench):
    rights = "connections: {{disk: {{{}}}, workers: {{allow_workers: [n*]}}}}"
    bench.worker("maker", rights.format(""))

    @tool(effect="read")
    def narrow() -> None:
        """Allow the maker less, as its author would in another window."""
        bench.worker("maker", rights.format("allow: [read_file]"))

    spec = {"name": "new", "instructions": "Do it.", "connections": ["disk"]}
    bench.answers("make it", create(**spec))
    bench.answers("look first", "print('done')")
    bench.answers("write it", "await disk.write_file('out/a.md', 'x')")
    code = (
        "await workers.call('maker', 'make it')\nawait workers.call('new', 'look first')\nawait narrow()\n"
        "await workers.call('new', 'write it')"
    )
    response = await bench.run(code, disk(bench), narrow, on_confirm=asks()[0])
    assert "disk.write_file is not allowed here" in response.error


async def test_created_worker_can_call_only_what_its_maker_can(bench):
    bench.worker("maker", "connections: {workers: {allow_workers: [new, good]}}")
    bench.worker("good")
    bench.worker("bad")
    spec = {"name": "new", "instructions": "Do it.", "connections": ["workers"]}
    bench.answers("make it", create(**spec))
    bench.answers("be good", "print('good')")
    bench.answers(
        "call them", "print(await workers.call('good', 'be good'))\nawait workers.call('bad', 'x')"
    )
    person, _ = asks()
    code = "await workers.call('maker', 'make it')\nawait workers.call('new', 'call them')"
    response = await bench.run(code, on_confirm=person)
    assert "worker 'bad' may not be called here" in response.error


async def test_created_worker_has_the_budget_of_its_maker(bench):
    bench.worker("maker", "budget_usd: 1\nconnections: {workers: {allow_workers: ['*']}}")
    spec = {"name": "new", "instructions": "Do it.", "budget_usd": 50}
    bench.answers("make it", create(**spec))
    person, _ = asks()
    await bench.run("await workers.call('maker', 'make it')", on_confirm=person)
    bench.replies.clear()
    bench.answers("spend", "raise ValueError('no')", cost=0.6)
    response = await bench.run(
        "try:\n    await workers.call('new', 'spend')\nexcept ToolError as e:\n    print(e)",
        on_confirm=person,
        budget_usd=9.0,
        retry_count=5,
    )
    assert "budget of $1" in response.text


async def test_edited_file_of_a_created_worker_gains_no_rights(bench):
    """Writing to the folder of created workers gives no right that the agent lacks."""
    folder = bench.folder / "workers/generated"
    folder.mkdir(parents=True)
    wrong = {
        "sandbox": "sandbox: {paths: {etc: /etc}}\nconnections: {filesystem: {}}",
        "settings": "connections: {disk: {type: filesystem, roots: {etc: /etc}}}",
        "class": "connections: {os.path.join: {}}",
        "code": "connections: {custom: {x: {pre_approved: true}}}",
        "model": "model: gpt-5.5-pro",
        "confirm": "connections: {disk: {confirm: false}}",
        "unheld": "connections: [shell]",
    }
    for name, head in wrong.items():
        (folder / f"{name}.worker").write_text(f"---\n{head}\n---\nDo it.\n")
    code = "\n".join(
        f"try:\n    await workers.call('{name}', 'x')\nexcept ToolError as e:\n    print(e)"
        for name in wrong
    )
    response = await bench.run(code, disk(bench))
    assert len(response.text.splitlines()) == len(wrong)
    assert bench.children == []


async def test_passed_functions_still_ask_for_approval(bench):
    @tool
    def pay(n: int) -> int:
        """Pay."""
        return n

    spec = {"name": "payer", "instructions": "Pay.", "connections": ["pay"]}
    bench.answers("pay it", "print(await pay(1))")
    person, seen = asks()
    code = create(**spec) + "\nprint(await workers.call('payer', 'pay it'))"
    response = await bench.run(code, pay, on_confirm=person)
    assert response.text == "payer\n1"
    assert [(r.worker, r.action) for r in seen] == [(None, "workers.create"), ("payer", "pay")]
