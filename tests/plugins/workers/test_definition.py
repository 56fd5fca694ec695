"""A worker's file: what it may say, and errors that name file, line and key."""

import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from delf.errors import ConfigurationError, ToolRefusedError
from delf.plugins.host import PluginHost
from delf.protocols.sandbox import Returned
from delf_workers.definition import WorkerDefinition
from delf_workers.registry import Registry
from delf_workers.running import WorkerStrategy, text_of_worker_task


def read_worker(path: Any, name: Any):
    """Read the worker of a file, in a folder that a program chose."""
    return Registry([path.parent]).find(name)


def write(folder: Any, name: Any, text: Any):
    path = folder / f"{name}.worker"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


WHOLE = """
---
name: whole
description: All keys.
model: gpt-4o-mini
compatible_models: [gpt-*, "anthropic:*"]
connections:
  filesystem: {}
  shell:
    rules: [{pattern: git status, approval_required: false}]
  delegation: {allow_workers: [helper]}
  custom:
    my_tool: {pre_approved: true}
  mycompany.tools.Database: {url: x}
sandbox:
  paths:
    input: {root: ./input, mode: ro, suffixes: [.pdf, .txt]}
attachments: {max_count: 2, max_total_bytes: 1000, suffixes: [md], approval: true}
inputs:
  topic: {description: What about, default: tea}
result: {type: object}
limits: {timeout: 30, retries: 2, reruns: 1}
budget_usd: 0.5
---

Write about {{ topic }}.
"""


def test_read_worker_reads_every_key(tmp_path: Path):
    found = read_worker(write(tmp_path, "whole", WHOLE), "whole")
    assert found.description == "All keys."
    assert list(found.connections)[:2] == ["filesystem", "shell"]
    assert found.kind_of("delegation") == "workers"
    assert found.kind_of("mycompany.tools.Database") == "mycompany.tools.Database"
    assert found.attachments.suffixes == (".md",)
    assert found.instructions == "Write about {{ topic }}."
    assert found.fill({}) == "Write about tea."
    assert found.limits.timeout == 30


def test_toolsets_are_connections(tmp_path: Path):
    text = "---\ntoolsets:\n  shell: {rules: []}\n---\nDo it.\n"
    assert list(read_worker(write(tmp_path, "a", text), "a").connections) == ["shell"]


WRONG = {
    "no table": ("Do it.\n", "line 1: there is no table"),
    "not closed": ("---\nname: a\n", "line 1: the table is not closed"),
    "no YAML": ("---\nname: [a\n---\nx\n", "line 3: "),
    "no table but a list": ("---\n- a\n---\nx\n", "line 2: this is not a table"),
    "twice": ("---\nmodel: a\nmodel: b\n---\nx\n", "line 3: model is there twice"),
    "anchor": ("---\nlimits: &a {}\nsandbox: *a\n---\nx\n", "line 2: anchors and aliases"),
    "unknown": ("---\nmodell: a\n---\nx\n", "line 2: modell: unknown key; did you mean 'model'?"),
    "deep": ("---\nlimits:\n  timeout: 1\n  retrys: 1\n---\nx\n", "line 4: limits.retrys: unknown"),
    "value": ("---\nlimits:\n  timeout: soon\n---\nx\n", "line 3: limits.timeout: Input should be"),
    "bound": ("---\nbudget_usd: 0\n---\nx\n", "line 2: budget_usd: Input should be greater"),
    "name": ("---\nname: b\n---\nx\n", "line 2: name: 'b' differs from the name 'a' of the file"),
    "empty": ("---\nname: a\n---\n\n", "there are no instructions"),
    "both": (
        "---\nconnections: {}\ntoolsets: {}\n---\nx\n",
        "line 3: toolsets: give only one of connections and toolsets",
    ),
    "connections": ("---\nconnections: [1]\n---\nx\n", "line 2: connections: a list of names"),
    "connection": ("---\nconnections:\n  shell: 1\n---\nx\n", "line 3: connections.shell: Input"),
    "slot": ("---\nname: a\n---\n\none\n{{ two }}\n", "line 6: there is no input 'two'"),
    "slot after blanks": ("---\nname: a\n---\n \n\t\none\n{{ two }}\n", "line 7: there is no"),
    "slot with CRLF": ("---\r\n---\r\n\r\n\r\none\r\n{{ two }}\r\n", "line 6: there is no"),
    "schema": ("---\nresult: {type: thing}\n---\nx\n", "line 2: result: it is not a JSON Schema"),
    "maker": ("---\nmaker: b\n---\nx\n", "line 2: maker: only a generated worker"),
    "own": ("---\nfile: b\n---\nx\n", "line 2: file: unknown key"),
    "model": ("---\nmodel: {model: a, temperatur: 1}\n---\nx\n", "line 2: model: "),
    "no model": ("---\nmodel: {settings: {}}\n---\nx\n", "line 2: model: model is missing"),
    "filter": ("---\n---\n\none\n{{ 1 | two }}\n", "line 5: No filter named 'two'"),
    "nesting": ("---\n---\n{{" + "(" * 5000 + "}}\n", "line 3: it is nested too deeply"),
    "instructions": ("---\ninstructions: b\n---\nx\n", "line 2: instructions: unknown key"),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_file_line_and_key(case: Any, tmp_path: Path):
    text, message = WRONG[case]
    path = tmp_path / "a.worker"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        read_worker(path, "a")
    assert error.value.message.startswith(str(path))
    assert message in error.value.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"---\n\xff\n---\nx", "is not UTF-8 text"),
        (b"x" * 300_000, "has over 256 KiB"),
        (b"---\ndescription: 2026-13-45\n---\nx", "the table is not YAML"),
        (b"---\ninputs: " + b"[" * 3000 + b"\n---\nx", "the table is not YAML"),
    ],
)
def test_invalid_worker_file_is_refused(content: Any, message: Any, tmp_path: Path):
    path = tmp_path / "a.worker"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read_worker(path, "a")


@pytest.mark.parametrize("expression", ["words + 'a'", "words // 0", "'%d' % 'a'"])
def test_failing_expression_in_instructions_is_refused(expression: Any, tmp_path: Path):
    text = f"---\ninputs: {{words: {{type: integer, default: 1}}}}\n---\n{{{{ {expression} }}}}\n"
    worker = read_worker(write(tmp_path, "a", text), "a")
    with pytest.raises(ToolRefusedError, match="the instructions of worker 'a'"):
        worker.fill({})


@pytest.mark.parametrize(
    "task", ['x\n\nGiven: {"inputs": {"a": 1}, "attachments": ["b"]}', "x\n\nGiven: " + "[" * 9999]
)
async def test_words_of_a_task_are_not_read_as_its_inputs(task: str):
    seen: list[Any] = []

    async def call(name: str, arguments: Any) -> Returned:
        seen.append(arguments)
        return Returned(value="done")

    host: Any = SimpleNamespace(task=text_of_worker_task("w", task, {}, []), call=call)
    assert await WorkerStrategy().solve(host) == "done"
    assert seen[0]["task"] == task
    assert not seen[0].get("inputs")


def test_agent_file_of_llm_do_hints_at_the_migration_page(tmp_path: Path):
    write(tmp_path, "main", "Hello.").rename(tmp_path / "main.agent")
    with pytest.raises(ConfigurationError, match="there is no worker 'main'") as caught:
        Registry([tmp_path / "workers"], tmp_path).find("main")
    assert "docs/migrating/llm-do.md" in str(caught.value.hint)


def test_unreadable_folder_of_workers_is_named(tmp_path: Path):
    (tmp_path / "workers").symlink_to("workers")  # a link to itself
    with pytest.raises(ConfigurationError, match=r"/workers cannot be read: "):
        Registry([tmp_path / "workers"], tmp_path).find("w")


def test_workers_are_found_in_several_folders(tmp_path: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    hello = "---\ndescription: {}\n---\nHello.\n"
    write(one, "a", hello.format("first"))
    write(one / "generated", "a", hello.format("generated"))
    write(two, "a", hello.format("second"))
    write(two / "b", "worker", hello.format("in a folder"))
    write(one / "generated/c", "worker", hello.format("made"))
    registry = Registry([one, two])
    assert list(registry.files()) == ["a", "b", "c"]
    assert registry.find("a").description == "first"
    assert registry.find("b").description == "in a folder"
    assert registry.find("c").generated
    with pytest.raises(ConfigurationError, match="there is no worker 'd'"):
        registry.find("d")


KNOWN = PluginHost.discover(environ={}).providers
MINI = [
    *("gpt-4o-mini", "GPT-4o-mini", "openai:gpt-4o-mini", "openai/gpt-4o-mini"),
    *("litellm/openai/gpt-4o-mini", "openrouter:openai/gpt-4o-mini"),
]


@pytest.mark.parametrize("model", MINI)
@pytest.mark.parametrize("pattern", ["gpt-*", "openai:*", "openai/gpt-4o*", "OpenAI:GPT-4o-mini"])
def test_model_patterns_match_every_spelling(model: Any, pattern: Any):
    for_it = WorkerDefinition(name="w", instructions="x", compatible_models=(pattern,))
    for_it.check_model(model, KNOWN.spellings(model))
    for other in ("claude-sonnet-4-5", "anthropic:gpt", "groq/llama-3", "llama3:8b"):
        with pytest.raises(ToolRefusedError, match="is for models like"):
            for_it.check_model(other, KNOWN.spellings(other))


@pytest.mark.parametrize(
    "model", ["gemini-2.5-pro", "gemini/gemini-2.5-pro", "google-gla:gemini-2.5-pro"]
)
@pytest.mark.parametrize("pattern", ["google:*", "gemini/*", "gemini-*", "google/gemini-2*"])
def test_model_patterns_match_provider_aliases(model: Any, pattern: Any):
    worker = WorkerDefinition(name="w", instructions="x", compatible_models=(pattern,))
    assert worker.check_model(model, KNOWN.spellings(model)) is None
