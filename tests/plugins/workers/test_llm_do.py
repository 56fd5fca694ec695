"""Workers as llm-do's users write them work unchanged."""

from pathlib import Path
from typing import Any

import pytest

from delf import events as ev
from delf.errors import ConfigurationError, ToolRefusedError
from delf_engine.project.folder import read_folder
from delf_workers import Workers
from delf_workers.registry import Registry


def worker(folder: Any, head: Any, text: Any, **beside: Any):
    """Write a worker into a folder of its own, with texts beside it."""
    (folder / "w").mkdir(parents=True, exist_ok=True)
    (folder / "w/worker.worker").write_text(f"---\n{head}\n---\n{text}\n")
    for name, content in beside.items():
        (folder / "w" / name.replace("_", ".", 1)).write_text(content)
    return Registry([folder]).find("w")


def test_instructions_support_files_and_conditions(tmp_path: Path):
    found = worker(
        tmp_path,
        "inputs: {deep: {type: boolean, default: false}, topic: {default: tea}}",
        "{{ file('RUBRIC.md') }}\n{% if deep %}Be thorough.{% else %}Be brief.{% endif %}"
        "\n{{ topic | upper }}",
        RUBRIC_md="Look at {{ everything }}.\n",
    )
    assert found.fill({}) == "Look at {{ everything }}.\nBe brief.\nTEA"
    assert "Be thorough." in found.fill({"deep": True})


def test_input_value_is_not_evaluated_as_a_template(tmp_path: Path):
    found = worker(tmp_path, "inputs: {topic: {}}", "About {{ topic }}.")
    assert found.fill({"topic": "{{ 7 * 7 }}"}) == "About {{ 7 * 7 }}."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% if %}", "line 4: Expected an expression"),
        ("one\n{% for x in y %}{{ x }}{% endfor %}", "line 5: there is no input 'y'"),
        ("{{ open('x') }}", "line 4: there is no input 'open'"),
    ],
)
def test_unreadable_worker_is_reported_with_its_line(tmp_path: Path, text: Any, message: Any):
    with pytest.raises(ConfigurationError, match=message):
        worker(tmp_path, "inputs: {}", text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ file('../other.md') }}",
        "{{ file('/etc/passwd') }}",
        "{{ file('sub/x.md') }}",
        "{{ topic.__class__.__mro__ }}",
        "{{ topic.nothing }}",
    ],
)
def test_template_cannot_read_other_files(tmp_path: Path, text: Any):
    (tmp_path / "other.md").write_text("secret")
    found = worker(tmp_path, "inputs: {topic: {default: tea}}", text)
    with pytest.raises(ToolRefusedError, match="worker 'w'"):
        found.fill({})


@pytest.mark.parametrize("text", ["{% for i in range(9) %}x{% endfor %}", "{{ file('a.md') }}"])
def test_generated_worker_template_may_only_use_values(tmp_path: Path, text: Any):
    registry = Registry([tmp_path])
    with pytest.raises(ConfigurationError, match="input }} only"):
        registry.text_of({"name": "made"}, text)


def test_attachment_policy_equals_attachments(tmp_path: Path):
    head = """attachment_policy:
  max_attachments: 1
  max_total_bytes: 1000
  allowed_suffixes: [.pdf]
  denied_suffixes: [.exe]"""
    policy = worker(tmp_path, head, "x").attachments
    assert (policy.max_count, policy.max_total_bytes) == (1, 1000)
    assert (policy.suffixes, policy.denied_suffixes) == ((".pdf",), (".exe",))
    with pytest.raises(ConfigurationError, match=r"line 3: attachment_policy\.max: unknown key"):
        worker(tmp_path, "attachment_policy:\n  max: 1", "x")
    with pytest.raises(ConfigurationError, match="only one of attachments and attachment_policy"):
        worker(tmp_path, "attachment_policy: {}\nattachments: {}", "x")


def test_output_schema_file_is_read_beside_the_worker(tmp_path: Path):
    schema = '{"type": "object", "required": ["title"]}'
    found = worker(tmp_path, "output_schema_ref: report.json", "x", report_json=schema)
    assert found.result == {"type": "object", "required": ["title"]}
    with pytest.raises(ConfigurationError, match=r"missing\.json cannot be read"):
        worker(tmp_path, "output_schema_ref: missing.json", "x")
    with pytest.raises(ConfigurationError, match="is not JSON"):
        worker(tmp_path, "output_schema_ref: report.json", "x", report_json="{")


PLAIN = '''
def factorial(n: int) -> int:
    """The factorial of n."""
    return 1 if n < 2 else n * factorial(n - 1)


def hidden() -> str:
    """Not named by the worker."""
    return "no"
'''


async def test_functions_of_tools_py_become_tools(bench: Any):
    path = bench.worker("math", "toolsets: {custom: {factorial: {pre_approved: true}}}")
    path.with_name("tools.py").write_text(PLAIN)
    bench.answers("compute", "print(await factorial(5))")
    response = await bench.run("print(await workers.call('math', 'compute'))", Workers())
    assert response.text == "120"


async def test_plain_function_asks_unless_pre_approved(bench: Any):
    path = bench.worker("math", "toolsets: {custom: {factorial: {}}}")
    path.with_name("tools.py").write_text(PLAIN)
    bench.answers("compute", "print(await factorial(3))")
    script = "try:\n    print(await workers.call('math', 'compute'))\nexcept ToolError as e:\n    print(e)"
    response = await bench.run(script, Workers())
    assert "factorial" in response.text
    assert "6" not in response.text.split()


async def test_worker_can_use_provider_search(bench: Any):
    bench.worker("scout", "server_side_tools: [{tool_type: web_search, max_uses: 3}]")
    bench.answers("look it up", "print('found')")
    response = await bench.run("print(await workers.call('scout', 'look it up'))", Workers())
    assert response.text == "found"
    shown = {c.model: c.settings.get("server_side_tools") for c in bench.model.configs}
    assert shown == {"scripted": [{"tool_type": "web_search", "max_uses": 3}]}
    asked = [event.server_side for event in bench.of(ev.ModelCalled)]
    assert asked == [(), ("web_search",)]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("[{tool_type: image_generation}]", "line 2: server_side_tools: .*'image_generation'"),
        ("[{tool_type: web_search, uses: 3}]", "unknown field 'uses'"),
        ("web_search", "line 2: server_side_tools"),
    ],
)
def test_unsupported_provider_tool_is_reported_with_its_line(
    tmp_path: Path, tools: Any, message: Any
):
    with pytest.raises(ConfigurationError, match=message):
        worker(tmp_path, f"server_side_tools: {tools}", "x")


def test_generated_worker_may_not_declare_provider_tools(tmp_path: Path):
    with pytest.raises(
        ConfigurationError, match="a generated worker takes this setting from its maker"
    ):
        Registry([tmp_path]).text_of({"name": "made", "server_side_tools": ["web_search"]}, "x")


async def test_sandbox_path_of_a_worker_is_created(bench: Any):
    paths = "sandbox: {paths: {out: {root: ./out, mode: rw, write_approval: false}}}"
    bench.worker("notes", f"{paths}\ntoolsets: {{filesystem: {{}}}}")
    bench.answers("keep it", "await write_file('out/a.txt', 'kept')\nprint('done')")
    response = await bench.run("print(await workers.call('notes', 'keep it'))", Workers())
    assert response.text == "done"
    assert (bench.folder / "out/a.txt").read_text() == "kept"


async def test_missing_sandbox_path_is_reported(bench: Any):
    bench.worker("lost", "sandbox: {paths: {in: {root: ./gone}}}\ntoolsets: {filesystem: {}}")
    response = await bench.run("print(await workers.call('lost', 'read it'))", Workers())
    assert "lost.worker, line 3: connections.filesystem: the root 'in'" in response.error


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("worker_call('helper')", "Do what your instructions say."),
        ("worker_call(worker='helper', task={'topic': 'tea'})", '{"topic": "tea"}'),
        ("worker_call('helper', {'topic': 'tea'}, [])", '{"topic": "tea"}'),
        ("worker_call(worker='helper', input_data={'topic': 'tea'})", '{"topic": "tea"}'),
        ("worker_call(worker='helper', input_data='tea')", "tea"),
    ],
)
async def test_llm_do_call_notations_are_supported(bench: Any, call: Any, shown: Any):
    bench.worker("helper", instructions="Be of help.")
    bench.answers("Be of help.", "print('helped')")
    response = await bench.run(f"print(await {call})", Workers())
    assert response.text == "helped"
    assert [child.task for child in bench.children] == [shown]


def program(folder: Any, **texts: Any):
    """Write a program in llm-do's layout: ``main.worker`` in its own folder."""
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_of", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_llm_do_program_runs_unchanged(bench: Any):
    """The program's main worker is in its folder, with all workers' functions and a text."""
    factorial = "custom: {factorial: {pre_approved: true}}"
    calls = "delegation: {allow_workers: [helper]}"
    program(
        bench.folder,
        main_ofworker=f"---\ntoolsets: {{{factorial}, {calls}}}\n---\n{{{{ file('STEPS.md') }}}}",
        STEPS_ofmd="ask the helper",
        tools_ofpy=PLAIN,
        workers__helper_ofworker=f"---\ntoolsets: {{{factorial}}}\n---\nHelp out.",
    )
    bench.answers("Help out.", "print(await factorial(4))")
    bench.answers("ask the helper", "print(await worker_call('helper'), await factorial(5))")
    response = await bench.run("print(await workers.call('main', 'go'))", Workers())
    assert response.text == "24 120"


ANALYSER = """---
name: main
toolsets:
  shell:
    rules:
    - {pattern: find, approval_required: false}
    - {pattern: wc, approval_required: false}
    - {pattern: git log, approval_required: false}
    - {pattern: sort, approval_required: true}
    - {pattern: cat, approval_required: false, sandbox_paths: [input]}
---
Count the code.
"""


async def test_llm_do_shell_rule_matches_by_prefix(bench: Any):
    """The file is unchanged; commands other than reads ask, and here nobody can be asked."""
    program(bench.folder, main_ofworker=ANALYSER, a_oftxt="one\ntwo\n")
    commands = [
        "find . -type f -name '*.txt'",
        "wc -l ./a.txt",
        "find . -delete",
        "sort a.txt",
        "cat a.txt",
        "findmnt",
        "git push",
    ]
    code = f"""for command in {commands}:
    try:
        print((await shell.run(command))["stdout"].strip())
    except ToolError as error:
        print("asks" if "approval" in str(error) else "blocked")"""
    bench.answers("Count the code.", code)
    response = await bench.run("print(await workers.call('main', 'go'))", Workers())
    shown = response.text.split("\n")
    assert shown == ["./a.txt", "2 ./a.txt", "asks", "asks", "asks", "blocked", "blocked"]
    assert (bench.folder / "a.txt").exists()


def test_connection_rules_keep_delf_semantics(tmp_path: Path):
    head = "connections: {shell: {rules: [{pattern: find}]}}"
    assert worker(tmp_path, head, "x").connections["shell"] == {"rules": [{"pattern": "find"}]}
    head = "toolsets: {shell: {rules: [{pattern: find, match: words}]}}"
    (rule,) = worker(tmp_path, head, "x").connections["shell"]["rules"]
    assert rule["match"] == "words"


@pytest.mark.parametrize("name", ["main.worker", "tools.py", "STEPS.md"])
def test_program_files_are_trusted_with_their_folder(tmp_path: Path, name: Any):
    program(
        tmp_path,
        main_ofworker="---\nname: main\n---\n{{ file('STEPS.md') }}",
        STEPS_ofmd="x",
        tools_ofpy=PLAIN,
        README_ofmd="not of the program",
    )
    items = read_folder(tmp_path, None, {}).items
    assert name in items
    assert "README.md" not in items
