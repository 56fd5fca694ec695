"""Answers without a script, and scripts without an answer."""

import pytest

from delf import Chat, tool
from delf.events import ScriptGenerated
from delf.testing import script

PROSE = "You are welcome! I can look up orders and refund them."


@pytest.fixture
def look():
    made = []

    @tool(effect="read", confirm=False)
    async def look(name: str) -> int:
        """Look something up."""
        made.append(name)
        return 42

    look.made = made
    return look


def test_second_prose_answer_is_accepted(make_agent, scripted_model, look):
    scripted_model.says("I think so.", PROSE)
    response = make_agent(look).run("thanks")
    assert (response.text, response.status, response.used_tools) == (PROSE, True, False)
    assert response.to_dict()["used_tools"] is False
    assert not [event for event in response.events if isinstance(event, ScriptGenerated)]
    assert "prints just that" in scripted_model.prompts[1]
    (warning,) = response.trace.warnings
    assert "no tool was called" in warning
    assert "try a stronger model (--llm MODEL)" in warning


def test_prose_warning_is_absent_without_tools_or_with_a_script(make_agent, scripted_model, look):
    scripted_model.says("I think so.", PROSE)
    assert make_agent().run("thanks").trace.warnings == []
    scripted_model.says(script("print(6 * 7)"))
    assert make_agent(look).run("six times seven").trace.warnings == []


def test_prose_answer_is_retried_once_for_a_script(make_agent, scripted_model, look):
    scripted_model.says("I would look.", script("print(await look('x'))"))
    response = make_agent(look).run("look")
    assert (response.text, response.used_tools) == ("42", True)


def test_prose_answer_in_a_conversation_needs_one_model_call(make_agent, scripted_model, look):
    scripted_model.says(PROSE)
    response = make_agent(look, chat=Chat()).run("what can you do?")
    assert (response.text, len(scripted_model.requests)) == (PROSE, 1)
    assert response.trace.warnings == []


def test_prose_after_a_tool_call_is_not_an_answer(make_agent, scripted_model, look):
    scripted_model.says(script("await look('x')\n1 / 0"), "It is 42.", "It is 42, surely.")
    response = make_agent(look).run("look")
    assert not response.status
    assert "It is 42, surely." in response.error


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("", "its answer is empty"),
        ('{"code": "f(1)", "code": "f(2)"}', '"code" is in it twice'),
    ],
)
def test_non_prose_answer_fails_with_its_text(make_agent, scripted_model, message, why):
    scripted_model.says(message, message)
    response = make_agent().run("x")
    assert not response.status
    assert "without a script 2 times" in response.error
    assert why in response.error or why in scripted_model.prompts[1]
    assert message in response.error


def test_prose_without_retries_left_fails_with_its_text(make_agent, scripted_model):
    scripted_model.says(PROSE)
    response = make_agent(retry_count=0).run("x")
    assert not response.status
    assert PROSE in response.error


@pytest.mark.parametrize(
    "silent",
    ["...", "pass", "x = await look('a')\nx = None", "def helper(a):\n    return a", "'' "],
)
def test_script_without_an_answer_is_retried(make_agent, scripted_model, look, silent):
    scripted_model.writes(silent, "print('done')")
    response = make_agent(look).run("x")
    assert response.text == "done"
    assert "printed nothing" in scripted_model.prompts[1]


def test_script_without_an_answer_after_retries_fails(make_agent, scripted_model):
    scripted_model.writes("pass", "pass")
    response = make_agent().run("x")
    assert not response.status
    assert "there is no answer" in response.error


@tool(effect="read", confirm=False)
def search(words: str) -> list[dict]:
    """Search."""
    return [{"id": 1, "words": words}] if words == "there" else []


def test_empty_result_is_an_answer(make_agent, scripted_model):
    scripted_model.writes(*["for row in await search('gone'): print(row)"] * 2)
    response = make_agent(search).run("x")
    assert response.status, response.error
    assert response.text == "Nothing was found:\n- search(words='gone') returned an empty list"


def test_unprinted_results_are_not_an_answer(make_agent, scripted_model):
    scripted_model.writes(*["rows = await search('there')\nx = None"] * 2)
    response = make_agent(search).run("x")
    assert not response.status
    assert "there is no answer" in response.error


def test_retry_after_a_silent_script_lists_what_its_calls_returned(make_agent, scripted_model):
    first = "rows = await search('there')\nnone = await search('gone')\nx = None"
    scripted_model.writes(first, "print(rows[0]['id'])")
    assert make_agent(search).run("x").text == "1"
    prompt = scripted_model.prompts[1]
    assert "search(words='there') returned a list of 1, the first a dict with id, words" in prompt
    assert "search(words='gone') returned an empty list" in prompt
    assert "- rows: list" in prompt


@pytest.mark.parametrize(
    "code",
    [
        "await keep(1)",
        "add_to_output_files('a.txt', 'a')",
        "print('x')",
        "'x'",
        "0",
        "False",
        "[]",
    ],
)
def test_script_with_a_change_or_value_needs_no_print(make_agent, scripted_model, code):
    @tool(effect="write", confirm=False)
    def keep(x: int) -> None:
        """Keep it."""

    scripted_model.writes(code)
    assert make_agent(keep).run("x").status
    assert len(scripted_model.requests) == 1


def test_output_of_an_earlier_script_counts_as_answer(make_agent, scripted_model):
    scripted_model.writes("print('one')\nrerun('a', 'b')", "pass")
    assert make_agent().run("x").text == "one"
