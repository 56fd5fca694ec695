"""Feedback to the model about its scripts, and the answer of a task."""

import datetime as dt

import pytest

from delf import Agent, tool
from delf.protocols.sandbox import Failed, LimitReached, Rerun
from delf_strategy_codegen.extract import find_script
from delf_strategy_codegen.prompt import (
    rerun_messages,
    retry_messages,
    script_rules,
    unusable_answer_messages,
)
from delf_strategy_codegen.strategy import compose


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


# -- prompt ---------------------------------------------------------------------------------


def test_tool_description_takes_at_most_600_tokens(delf_host, scripted_model):
    scripted_model.writes("print(3)")
    with Agent(tools=[add], llm="scripted", host=delf_host, sandbox="local") as agent:
        agent.run("What is 1 + 2?")
    assert "add(a: int" in scripted_model.prompts[0]
    assert len(scripted_model.prompts[0]) / 4 <= 600


def test_prompt_prefix_is_identical_byte_for_byte(delf_host, scripted_model):
    scripted_model.writes("1 / 0", "print(3)", "print(4)")
    with Agent(tools=[add], llm="scripted", host=delf_host, sandbox="local") as agent:
        agent.run("What is 1 + 2?")
        agent.run("What is 2 + 2?")
    first, again, second = [request.messages for request in scripted_model.requests]
    assert again[: len(first)] == first
    assert [message.role for message in again[len(first) :]] == ["assistant", "user"]
    assert first[0] == second[0]
    assert first[0].role == "system"


def test_rules_explain_rerun_and_answers():
    rules = " ".join(script_rules("").split())
    assert "end with rerun(context, remaining)" in rules
    assert "the next script with that context" in rules
    assert "prints stay in the answer" in rules
    assert "({sheet: dicts} for several)" in rules


def test_rules_mention_approvals_only_if_an_action_asks():
    assert "ApprovalRejected" not in script_rules('async def f():  """Read."""')
    assert "ApprovalRejected" in script_rules('async def f():  """Pay. [asks]"""')


def test_rules_mention_missing_tools_and_allowed_libraries():
    assert "There are none" in script_rules("")
    assert "standard modules and pandas can be imported" in script_rules("", ("pandas",))


@pytest.mark.parametrize(
    "follow",
    [
        retry_messages("code", Failed(kind="E", message="m"), "", variables_alive=True),
        rerun_messages("code", Rerun(context="c", remaining="r"), ""),
        unusable_answer_messages(""),
    ],
)
def test_follow_up_messages_begin_with_the_assistants_script(follow):
    assert [message.role for message in follow] == ["assistant", "user"]
    assert follow[0].text


def test_failure_feedback_has_line_variables_and_output():
    failed = Failed(
        kind="KeyError",
        message="'x'",
        line=3,
        source="rows['x']",
        variables={"rows": "list of 2 dict"},
    )
    text = retry_messages("code", failed, "half an answer" * 1_000, variables_alive=True)[1].text
    for part in (
        "KeyError: 'x'",
        "Line 3: rows['x']",
        "- rows: list of 2 dict",
        "half an answer",
        "(cut)",
    ):
        assert part in text
    fresh = retry_messages(
        "code", LimitReached(limit="cpu", message="m"), "", variables_alive=False
    )[1].text
    assert "cpu limit: m" in fresh
    assert "Its variables are lost" in fresh
    assert "rows" not in fresh


def test_changes_of_a_failed_script_are_reported():
    done = [f"sql.write(sql='INSERT {n}', params=None)" for n in range(30)]
    failed = Failed(kind="E", message="m")
    text = retry_messages("code", failed, "", variables_alive=True, changes=done)[1].text
    assert "- … 10 calls\n- sql.write(sql='INSERT 10', params=None)\n" in text
    assert "- sql.write(sql='INSERT 29', params=None)\n" in text
    assert "INSERT 9'" not in text
    assert "changed" not in retry_messages("code", failed, "", variables_alive=True)[1].text


def test_script_containing_a_fence_is_quoted_with_a_longer_fence():
    code = 's = """\n```\nx\n````\n"""\nprint(s)'
    shown = retry_messages(code, Failed(kind="E", message="m"), "", variables_alive=False)[0].text
    assert shown.startswith("`````python\n")
    assert find_script(shown).code == code


# -- compose --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "value", "answer"),
    [
        ("\na\n\n", 5, "a"),
        ("", "text", "text"),
        ("  \n", None, "  "),
        ("", None, ""),
        ("", 5, "5"),
        ("", {"ü": [1]}, '{\n  "ü": [\n    1\n  ]\n}'),
        ("", [dt.date(2020, 1, 2)], '[\n  "2020-01-02"\n]'),
        ("", {(1, 2): 3}, "{(1, 2): 3}"),
        ("", {1}, "{1}"),
    ],
)
def test_compose_returns_prints_or_value(printed, value, answer):
    assert compose(printed, value) == answer
