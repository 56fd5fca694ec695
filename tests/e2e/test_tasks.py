"""Whole tasks: a model over HTTP, a script in its own process, a real database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delf import Agent, LLMConfig
from delf_sql import SQL
from support.fixtures import Database
from support.openai_server import OpenAIServer

pytestmark = pytest.mark.services

QUESTION = """\
top, count = await asyncio.gather(
    sql.query("SELECT name, price FROM products ORDER BY price DESC LIMIT 2", desc="dearest"),
    sql.query("SELECT COUNT(*) AS n FROM products"),
)
print("| product | price |\\n|---|---|")
for row in top:
    print(f"| {row['name']} | {row['price']} |")
print(f"{count[0]['n']} products")
"""

CHANGE = """\
done = await sql.write(
    "UPDATE products SET price = price + :more WHERE name = :name",
    {"more": 5, "name": "lamp"},
    desc="raise the price of lamps",
)
print(done["rowcount"], "changed")
"""

SneakyServer = Callable[..., OpenAIServer]


@pytest.fixture
def shop(any_database: Database) -> Database:
    """A shop's database on each engine."""
    any_database.run("CREATE TABLE products (name VARCHAR(40) PRIMARY KEY, price INTEGER)")
    any_database.run("INSERT INTO products VALUES ('lamp', 20), ('desk', 150), ('chair', 80)")
    return any_database


def prices(shop: Database) -> str:
    return shop.run("SELECT price FROM products WHERE name = 'lamp'").strip()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_task_answers_a_question_from_a_database(
    shop: Database, openai_server: SneakyServer, stream: bool
) -> None:
    server = openai_server([f"```python\n{QUESTION}```"])
    llm = LLMConfig("shop-model", base_url=server.base_url, api_key="sk-secret-key")
    with Agent(tools=[SQL(url=shop.url)], llm=llm, sandbox="local", stream=stream) as agent:
        response = agent.run("What are the dearest products?").raise_for_status()
    assert response.text == (
        "| product | price |\n|---|---|\n| desk | 150 |\n| chair | 80 |\n3 products"
    )
    assert sorted(c.name for c in response.trace.tool_calls) == ["sql.query", "sql.query"]
    assert all(c.success for c in response.trace.tool_calls)
    prompt = server.requests[0].prompt
    assert "products(" in prompt, "the schema is part of the prompt"
    secrets = [shop.url, "sk-secret-key", *(p for p in [password(shop.url)] if p)]
    assert not [s for s in secrets if s in prompt or s in str(response.trace.to_dict())]


def password(url: str) -> str | None:
    from urllib.parse import urlsplit

    return urlsplit(url).password


def test_approved_change_reaches_the_database(shop: Database, openai_server: SneakyServer) -> None:
    asked: list[Any] = []

    def on_confirm(request: Any) -> bool:
        asked.append((request.action, request.effect, request.description))
        assert prices(shop) == "20", "nothing happened before the answer"
        return True

    server = openai_server([f"```python\n{CHANGE}```"])
    llm = LLMConfig("shop-model", base_url=server.base_url)
    tools = [SQL(url=shop.url)]
    with Agent(tools=tools, llm=llm, sandbox="local", on_confirm=on_confirm) as agent:
        response = agent.run("Raise the price of lamps by 5.").raise_for_status()
    assert response.text == "1 changed"
    assert prices(shop) == "25"
    assert asked == [("sql.write", "write", "raise the price of lamps")]


def test_forbidden_action_is_hidden_and_refused(
    shop: Database, openai_server: SneakyServer
) -> None:
    server = openai_server([f"```python\n{CHANGE}```"] * 2)
    llm = LLMConfig("shop-model", base_url=server.base_url)
    tools = [SQL(url=shop.url, allow=["schema", "query"], confirm=False)]
    with Agent(tools=tools, llm=llm, sandbox="local") as agent:
        response = agent.run("Raise the price of lamps by 5.")
    assert not response.status
    assert {c.status for c in response.trace.tool_calls} == {"refused"}
    assert "def write" not in server.requests[0].prompt
    assert prices(shop) == "20"


def test_writing_query_fails_in_the_database(shop: Database, openai_server: SneakyServer) -> None:
    script = "await sql.query(\"DELETE FROM products WHERE name = 'lamp'\")"
    server = openai_server([f"```python\n{script}\n```"] * 2)
    llm = LLMConfig("shop-model", base_url=server.base_url)
    with Agent(tools=[SQL(url=shop.url)], llm=llm, sandbox="local") as agent:
        response = agent.run("Delete the lamp.")
    assert not response.status
    assert {c.status for c in response.trace.tool_calls} <= {"error", "refused"}
    assert prices(shop) == "20"
