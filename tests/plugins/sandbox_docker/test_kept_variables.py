"""A chat with keep = "variables" whose scripts run in containers."""

from __future__ import annotations

import pytest

from delf import Agent, Chat

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]

FIRST = """
import datetime as dt
rows = [{"name": "lamp", "on": dt.date(2026, 1, 2), "price": 4.5}]
total = 3
print("looked")
"""


def test_variables_are_restored_in_the_next_container(docker_engine, delf_host, scripted_model):
    scripted_model.writes(FIRST, 'total += 1\nprint(rows[0]["on"].year, total)', "print(total)")
    place = {"engine": docker_engine.url, "base_image": docker_engine.base_image}
    options = {"sandbox": "docker", "sandbox_config": place, "host": delf_host}
    with Agent(chat=Chat(keep="variables"), llm="scripted", **options) as agent:
        outcome_text = [
            agent.run(task).raise_for_status().text for task in ("look", "and?", "now?")
        ]
    assert [text.strip() for text in outcome_text] == ["looked", "2026 4", "4"]
