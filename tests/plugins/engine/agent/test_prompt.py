"""Tests of what a model's prompt contains, and in which message."""

import re
import time

import pytest

from delf import Chat, tool
from delf.events import TaskStarted
from delf.protocols.memory import Fact


@tool(effect="read", confirm=False)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Store:
    async def search(self, query, top_k=5, threshold=0.3):
        from datetime import UTC, datetime

        return [Fact(content="Ann is 7.", saved_at=datetime.now(UTC))]

    async def aclose(self):
        pass

    save = delete = clear = all = search


def test_prompt_parts_keep_their_order(make_agent, scripted_model):
    scripted_model.writes("print(1)", "print(2)")
    agent = make_agent(add, system_prompt="Be brief.", memory=Store(), chat=Chat())
    agent.run("first")
    agent.run("second")
    first, second = (request.messages for request in scripted_model.requests)
    assert [m.role for m in second] == ["system"] * 3 + ["user", "assistant", "user"]
    assert second[1].text == "Be brief."
    assert second[2].text == "Known facts:\n- Ann is 7."
    assert second[-1].text.endswith("Task:\nsecond")
    assert second[:3] == first[:3]


@pytest.mark.parametrize(
    "message",
    [
        "name nothing like one",
        "Results are plain data",
        "a date is a text unless its type says date or datetime",
        "Where nothing is found, no tool is needed, or something essential is missing, print just that",
        "only by add_to_output_files",
        "or by open()",
    ],
)
def test_prompt_rules_explain_names_and_results(make_agent, scripted_model, message):
    scripted_model.writes("print(1)")
    make_agent(add).run("x")
    assert message in scripted_model.requests[0].messages[0].text


def test_prompt_names_the_python_version_of_the_sandbox(make_agent, scripted_model):
    scripted_model.writes("import sys\nprint(sys.version_info[:2])")
    response = make_agent(add).run("x").raise_for_status()
    message = scripted_model.requests[0].messages[0].text
    major, minor = re.search(r"Python (\d)\.(\d+), no network", message).groups()
    assert response.text == f"({major}, {minor})"


@pytest.mark.parametrize(
    ("zone", "shown"), [("Asia/Tokyo", "+0900 (Asia/Tokyo)"), ("UTC0", "+0000 (UTC)")]
)
def test_current_time_is_sent_with_the_task(make_agent, scripted_model, monkeypatch, zone, shown):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        scripted_model.writes("print(1)")
        response = make_agent(add).run("What day is it?")
    finally:
        monkeypatch.undo()
        time.tzset()
    rules, asked = scripted_model.requests[0].messages
    (begun,) = [event.at for event in response.events if isinstance(event, TaskStarted)]
    assert "Now: " not in rules.text
    assert re.search(r"Now: \w{3} \d{4}-\d\d-\d\d \d\d:\d\d " + re.escape(shown), asked.text)
    assert begun


def test_prompt_of_one_tool_takes_at_most_500_tokens(make_agent, scripted_model):
    scripted_model.writes("print(1)")
    make_agent(add).run("x")
    assert len(scripted_model.prompts[0]) / 4.3 <= 500  # English has 4.5 characters a token
