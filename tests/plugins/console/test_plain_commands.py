"""Commands as people type them the first time."""

import json
from typing import Any

import pytest

from support.program import write_recording


@pytest.mark.parametrize(
    ("bare", "whole"),
    [
        ("runs", "runs list"),
        ("runs --json", "runs list --json"),
        ("approvals --json", "approvals list --json"),
        ("config --json", "config show --json"),
        ("workers --json", "workers list --json"),
        ("routines --json", "routines list --json"),
        ("memory --json", "memory list --json"),
        ("schedule --json", "schedule list --json"),
        ("keys --json", "keys list --json"),
    ],
)
def test_group_without_a_subcommand_lists(run: Any, here: Any, bare: Any, whole: Any):
    short, long = run(*bare.split()), run(*whole.split())
    assert short.exit_code == long.exit_code == 0, short.output
    assert (short.stdout, short.stderr) == (long.stdout, long.stderr)


def test_task_words_need_no_quotes(run: Any, here: Any):
    model = write_recording(here / "r.jsonl", "print('yes')")
    done = run("run", "is", "there", "tea?", "--llm", model, "--json")
    assert json.loads(done.stdout)["text"].strip() == "yes"
    assert json.loads(run("runs", "--json").stdout)[0]["task"] == "is there tea?"


def test_inputs_of_a_routine_without_their_option_are_refused(run: Any, here: Any):
    """A routine with its inputs must not be sent to a model as a task."""
    (here / "routines").mkdir()
    (here / "routines/remind.py").touch()
    model = write_recording(here / "r.jsonl", "print('paid')")
    done = run("run", "remind", "to=Ada L", "days=3", "--llm", model)
    answer_text = " ".join(done.stderr.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert "delf run remind --input 'to=Ada L' --input days=3" in answer_text
    assert run("run", "solve", "x=3", "--llm", model).stdout == "paid\n"


@pytest.mark.parametrize("word", ["revenue", "stock-of-shop", "Umsatz"])
def test_single_word_task_is_taken_for_a_routine_name(run: Any, here: Any, word: Any):
    """A mistyped routine name must not be sent to a model as a task."""
    (here / "routines").mkdir()
    (here / "routines/revenues.py").touch()
    done = run("run", word, "--llm", write_recording(here / "r.jsonl", "print('paid')"))
    answer_text = " ".join(done.stderr.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{word!r} is one word, and no routine has this name" in answer_text
    assert ("did you mean 'revenues'" in answer_text) == (word == "revenue")
    assert f'delf run "{word}."' in answer_text


@pytest.mark.parametrize(
    ("words", "piped"), [(["revenue."], ""), (["-"], "revenue"), (["the", "revenue"], "")]
)
def test_task_of_several_words_is_not_a_routine_name(run: Any, here: Any, words: Any, piped: Any):
    model = write_recording(here / "r.jsonl", "print('yes')")
    done = run("run", *words, "--llm", model, input=piped)
    assert (done.exit_code, done.stdout.strip()) == (0, "yes"), done.output


@pytest.mark.parametrize(
    ("given", "status"), [("5m", 0), ("90", 0), ("2.5", 0), ("0", 2), ("x", 2)]
)
def test_timeout_option_accepts_seconds_and_units(run: Any, here: Any, given: Any, status: Any):
    model = write_recording(here / "r.jsonl", "print('yes')")
    done = run("run", "x", "--llm", model, "--timeout", given)
    assert done.exit_code == status, done.output


@pytest.mark.parametrize(
    "command",
    [
        "runs show 123",
        "approvals show 123",
        "nonsense",
        "run revenue",
        "run x --detach",
        "resume 123",
        "runs stop 123",
    ],
)
def test_failure_with_json_flag_is_written_as_json(run: Any, here: Any, command: Any):
    done = run(*command.split(), "--json")
    assert done.exit_code != 0
    error = json.loads(done.stdout)["error"]
    assert error["message"]
    assert error["message"].splitlines()[0] in done.stderr
    assert set(error) == {"message", "hint", "code"}


def test_config_set_accepts_a_model_with_its_address(run: Any, here: Any):
    given = '{"model": "gpt-4o-mini", "base_url": "http://localhost:11434/v1"}'
    assert run("config", "set", "agent.llm", given).exit_code == 0
    shown = json.loads(run("config", "get", "agent.llm", "--json").stdout)["value"]
    assert shown["base_url"] == "http://localhost:11434/v1"


def test_word_last_refers_to_the_newest_task(run: Any, here: Any):
    for task, script in (("the first", "print(1)"), ("the second", "print(2)")):
        assert run("run", task, "--llm", write_recording(here / "r.jsonl", script)).exit_code == 0
    for command in ("show", "events", "code"):
        done = run("runs", command, "last")
        assert done.exit_code == 0, done.output
        assert ("second" in done.stdout) == (command != "code")
    assert json.loads(run("runs", "show", "last", "--json").stdout)["answer"].strip() == "2"


def test_memory_add_refuses_the_name_of_a_missing_file(run: Any, here: Any):
    done = run("memory", "add", "notes.md")
    assert done.exit_code == 2
    assert "there is no file 'notes.md'" in done.stderr
    assert run("memory", "add", "the office is in Graz").exit_code == 0
    assert "no file" in run("memory", "add", "./folder/notes").stderr
