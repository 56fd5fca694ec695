"""Tests with three programs from each framework's own pages, migrated as docs/migrating says."""

import inspect
import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from delf import Agent, Response
from delf.errors import ToolDefinitionError
from delf_engine.foreign_tools import as_connections, foreign_functions
from support.program import write_recording
from support.workspace import ROOT

pytestmark = [pytest.mark.timeout(120), pytest.mark.slow]  # each imports a framework


@pytest.fixture
def run(tmp_path) -> Callable[..., Any]:
    """Return what a script prints that may call all of these tools."""

    async def run(tools: list[Any], script: str, **options: Any) -> str:
        model = write_recording(tmp_path / "r.jsonl", script)
        given: dict[str, Any] = {"approval_mode": "approve_all", "sandbox": "local", **options}
        async with Agent(tools, llm=model, **given) as agent:
            response: Response = await agent.arun("x")
        return response.raise_for_status().text.strip()

    return run


async def test_langchain_tool_with_one_text_input_is_callable():
    from langchain_core.tools import Tool

    async def later(text: str) -> str:
        return text.upper()

    say = Tool(name="say", description="Say it twice.", func=lambda text: text * 2, coroutine=later)
    (made,) = foreign_functions(say)
    assert list(inspect.signature(made).parameters) == ["tool_input"]
    assert await made(tool_input="ho") == "HO"


async def test_langchain_tools_are_callable_in_scripts(run):
    from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    class Trip(BaseModel):
        city: str = Field(description="Where to.")
        nights: int = 1

    async def book(city: str, nights: int = 1) -> str:
        return f"{nights} in {city}"

    booking = StructuredTool.from_function(
        coroutine=book, name="book-trip", description="Book a trip.", args_schema=Trip
    )

    class Search(BaseTool):
        name: str = "search"
        description: str = "Search the shop."
        handle_tool_error: bool = True

        def _run(self, query: str) -> str:
            raise ToolException(f"nothing for {query}")

    assert await run([multiply], "print(await multiply(a=6, b=7))") == "42"
    assert await run([booking], "print(await book_trip(city='Graz'))") == "1 in Graz"
    assert await run([Search()], "print(await search('tea'))") == "nothing for tea"


async def test_smolagents_tools_are_callable_in_scripts(run):
    from smolagents import Tool, ToolCollection, tool

    @tool
    def travel_time(start: str, hours: float, transport: str | None = None) -> str:
        """Tell how long a way is.

        Args:
            start: Where it begins.
            hours: How long it takes.
            transport: By what.
        """
        return f"{start}: {hours} h by {transport or 'car'}"

    class Catalog(Tool):
        name = "catalog"
        description = "Looks a party theme up."
        inputs = {"theme": {"type": "string", "description": "What for."}}
        output_type = "object"

        def forward(self, theme: str) -> dict[str, Any]:
            return {"theme": theme, "ideas": ["masks", "gold"]}

    class Greeting(Tool):
        name = "greeting"
        description = "Greets."
        inputs: dict[str, Any] = {}
        output_type = "string"

        def forward(self) -> str:
            return "hello"

    message = await run([travel_time], "print(await travel_time('Graz', 2.5))")
    assert message == "Graz: 2.5 h by car"
    code = "found = await catalog(theme='ball')\nprint(found['ideas'][1])"
    assert await run([Catalog()], code) == "gold"
    code = "print(await greeting(), (await catalog('ball'))['theme'])"
    assert await run([ToolCollection([Greeting(), Catalog()])], code) == "hello ball"


async def test_pydantic_ai_tools_are_callable_in_scripts(run):
    from pydantic_ai import CombinedToolset, FunctionToolset, RunContext, Tool

    def roll(sides: Annotated[int, Field(ge=2)] = 6) -> int:
        """Roll a die."""
        return sides

    class Player(BaseModel):
        name: str
        score: int = 0

    shop = FunctionToolset()

    @shop.tool_plain
    def price(product: str) -> float:
        """The price of a product."""
        return {"tea": 4.5}[product]

    @shop.tool_plain
    async def greet(player: Player) -> Player:
        """Greet a player."""
        return player.model_copy(update={"score": player.score + 1})

    assert await run([Tool(roll)], "print(await roll(20))") == "20"
    code = "p = await greet(name='Ada')\nprint(p['name'], p['score'], await price('tea'))"
    assert await run([shop], code) == "Ada 1 4.5"
    dice = FunctionToolset([roll])
    code = "print(await shop_price('tea'), await roll())"
    assert await run([CombinedToolset([shop.prefixed("shop"), dice])], code) == "4.5 6"
    only = shop.filtered(lambda _ctx, definition: definition.name == "price")
    (price_alone,) = as_connections([only])
    assert price_alone.name == "price"

    @shop.tool
    def secret(ctx: RunContext[str]) -> str:
        """Take what only a run has."""
        return ctx.deps

    for toolset in (shop, shop.prefixed("x"), CombinedToolset([shop])):
        with pytest.raises(ToolDefinitionError, match="takes a RunContext"):
            as_connections([toolset])


async def test_llm_tools_are_callable_in_scripts(run):
    import llm

    def upper(text: str) -> str:
        """Upper-case a text."""
        return text.upper()

    async def count(text: str, letter: str = "r") -> int:
        """Count a letter."""
        return text.count(letter)

    class Memory(llm.Toolbox):
        def __init__(self) -> None:
            self.kept: dict[str, str] = {}

        def store(self, key: str, value: str) -> str:
            """Keep a value."""
            self.kept[key] = value
            return "kept"

        def load(self, key: str) -> str:
            """The value that was kept."""
            return self.kept[key]

    assert await run([llm.Tool.function(upper)], "print(await upper('tea'))") == "TEA"
    counter = llm.Tool.function(count, name="count")
    assert await run([counter], "print(await count('strawberry'))") == "3"
    code = "await Memory_store('a', '1')\nprint(await Memory_load('a'))"
    assert await run([Memory()], code) == "1"


@pytest.mark.parametrize("page", ["langchain", "smolagents", "pydantic-ai"])
async def test_migration_page_programs_run_as_printed(page, tmp_path):
    """Run the page's program with the real package; only the rule on the page allows the call."""
    text = (ROOT / f"docs/migrating/{page}.md").read_text()
    (code,) = re.findall(r"```py\n(.*?)```", text, re.DOTALL)
    model = write_recording(tmp_path / "r.jsonl", "print(await weather(city='Graz'))")
    file = tmp_path / "page.py"
    file.write_text(code.replace('llm="gpt-4o-mini"', f'llm="{model}", sandbox="local"'))
    async with runpy.run_path(str(file))["agent"] as agent:
        response = await agent.arun("x")
    assert response.raise_for_status().text.strip() == "it rains in Graz"


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="needs Python 3.12 or older, as cogency does"
)
async def test_cogency_tools_are_callable_in_scripts(run):
    """Use its README's tool, the tool of its tools page with limits and an error, and a class."""
    from cogency import ToolResult
    from cogency.core.protocols import ToolParam
    from cogency.core.tool import tool

    @dataclass
    class QueryParams:
        sql: Annotated[str, ToolParam(description="SQL query to execute")]
        timeout: Annotated[int, ToolParam(description="Query timeout", ge=1, le=300)] = 30

    @tool("Execute SQL queries against the database")
    async def query_db(params: QueryParams, **_kwargs: Any) -> ToolResult:
        if "shop" not in params.sql:
            return ToolResult(outcome="Query failed: no such table", error=True)
        return ToolResult(outcome="Query successful", content=f"3 rows in {params.timeout} s")

    class Ping:
        name = "ping"
        description = "Ping a host."
        schema: dict[str, Any] = {"seconds": {"type": "float", "required": False}}

        async def execute(self, **kwargs: Any) -> ToolResult:
            return ToolResult(outcome=f"Up after {kwargs.get('seconds', 1.5)} s")

        def describe(self, args: dict[str, Any]) -> str:
            return f"ping({args})"

    code = "print(await query_db(sql='select 1 from shop'), await ping(seconds=2))"
    assert await run([query_db, Ping()], code) == "3 rows in 30 s Up after 2.0 s"
    code = "try:\n    await query_db('select 1')\nexcept ToolError as error:\n    print(error)"
    assert "Query failed: no such table" in await run([query_db], code.replace("('", "(sql='"))
    code = code.replace("('select 1')", "(sql='shop', timeout=900)")
    assert "less than or equal to 300" in await run([query_db], code)
