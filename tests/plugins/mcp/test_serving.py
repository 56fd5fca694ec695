"""A project as an MCP server, driven by the official client."""

import asyncio
import base64
import contextlib
import json
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult

from delf import Agent, CallContext, Connection, action, tool
from delf.testing import ScriptedModel, TestHost
from delf_mcp.serving import Served


class Shop(Connection):
    """A shop."""

    sold: list[str]

    def __init__(self, **options):
        super().__init__(**options)
        self.sold = []

    @action(effect="read")
    async def price(self, lamp: str) -> float:
        """The price of a lamp.

        Args:
            lamp: Its name.
        """
        return {"anna": 40.0}[lamp]

    @action(effect="read")
    async def picture(self, lamp: str) -> list[Any]:
        """A lamp with its picture."""
        return [
            lamp,
            {"type": "image", "media_type": "image/png", "data": b"\x89PNG"},
            {"on": True},
        ]

    @action(effect="irreversible")
    async def sell(self, lamp: str, count: int = 1) -> str:
        """Sell a lamp."""
        self.sold += [lamp] * count
        return f"sold {lamp}"

    @action(effect="read")
    async def polish(self, lamp: str, context: CallContext) -> str:
        """Polish a lamp, which takes long."""
        for part in ("shade", "foot", "cable"):
            context.say(f"{part} of {lamp}")
        return "it shines"


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def served(shop, model):
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    served = Served(lambda **more: Agent(tools=[shop], llm="scripted", host=host, **more))
    yield served
    await served.aclose()


async def says_yes(context, params):
    return ElicitResult(action="accept", content={"approve": True})


async def says_no(context, params):
    return ElicitResult(action="accept", content={"approve": False, "reason": "too dear"})


async def declines(context, params):
    return ElicitResult(action="decline")


every_era = pytest.mark.parametrize("mode", ["legacy", "auto"])


@every_era
async def test_actions_are_served_as_tools_with_hints(served, mode) -> None:
    async with Client(served.server(), mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"run", "shop_price", "shop_picture", "shop_sell", "shop_polish"}
    assert tools["shop_price"].description == "The price of a lamp."
    assert tools["shop_price"].input_schema["required"] == ["lamp"]
    assert tools["shop_price"].annotations.read_only_hint
    assert tools["shop_sell"].annotations.destructive_hint


@every_era
async def test_read_call_needs_no_approval(served, mode) -> None:
    async with Client(served.server(), mode=mode) as client:
        result = await client.call_tool("shop_price", {"lamp": "anna"})
    assert not result.is_error
    assert json.loads(result.content[0].text) == 40.0


@every_era
async def test_pictures_are_served_as_image_content(served, mode) -> None:
    async with Client(served.server(), mode=mode) as client:
        result = await client.call_tool("shop_picture", {"lamp": "anna"})
    title, picture, state = result.content
    assert (title.type, title.text) == ("text", "anna")
    assert (picture.type, picture.mime_type) == ("image", "image/png")
    assert base64.b64decode(picture.data) == b"\x89PNG"
    assert json.loads(state.text) == {"on": True}


class Lamps(Connection):
    """Lamps, whose numbers have the digits of a secret."""

    @action(effect="read")
    async def number(self, lamp: str) -> int:
        """The number of a lamp."""
        return 4070_4070_12


class LimitedLamps(Connection):
    """Lamps with a limit that has the digits of a secret."""

    @action(effect="read")
    async def number(self, limit: int = 4070_4070) -> int:
        """The number of lamps."""
        return limit


@pytest.fixture
async def serve_lamps(model):
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    options = {"llm": "scripted", "host": host, "api_key_for": {"openai": "40704070"}}
    async with contextlib.AsyncExitStack() as stack:

        def serve(lamps: Connection) -> Any:
            served = Served(lambda **more: Agent(**(options | {"tools": [lamps]} | more)))
            stack.push_async_callback(served.aclose)
            return served.server()

        yield serve


@every_era
async def test_result_with_a_redacted_number_is_a_text(serve_lamps, mode) -> None:
    async with Client(serve_lamps(Lamps()), mode=mode) as client:
        result = await client.call_tool("lamps_number", {"lamp": "anna"})
    assert not result.is_error
    assert result.content[0].text == "[redacted]12"


@every_era
async def test_redacted_schema_is_named_as_the_problem(serve_lamps, mode, caplog) -> None:
    async with Client(serve_lamps(LimitedLamps()), mode=mode) as client:
        with pytest.raises(MCPError, match="a number in a schema has a secret's digits"):
            await client.list_tools()
    assert not caplog.records


@every_era
async def test_irreversible_call_requires_approval_of_the_clients_user(served, shop, mode) -> None:
    asked = []

    async def confirm(context, params):
        asked.append(params.message)
        return await says_yes(context, params)

    async with Client(served.server(), mode=mode, elicitation_callback=confirm) as client:
        result = await client.call_tool("shop_sell", {"lamp": "anna"})
    assert json.loads(result.content[0].text) == "sold anna"
    assert shop.sold == ["anna"]
    assert len(asked) == 1
    assert asked[0].startswith("May shop.sell be called?\n● cannot be undone\n")
    assert "\nlamp: anna\n" in asked[0]


@every_era
async def test_clients_user_may_edit_the_arguments(served, shop, mode) -> None:
    forms = []

    async def change(context, params):
        forms.append(params.requested_schema)
        return ElicitResult(action="accept", content={"approve": True, "lamp": "anna", "count": 2})

    async with Client(served.server(), mode=mode, elicitation_callback=change) as client:
        result = await client.call_tool("shop_sell", {"lamp": "anna", "count": 1})
    assert json.loads(result.content[0].text) == "sold anna"
    assert shop.sold == ["anna", "anna"]
    (form,) = forms
    assert form["properties"]["lamp"] == {"type": "string", "title": "lamp", "default": "anna"}
    assert form["properties"]["count"]["default"] == 1
    assert form["required"] == ["approve"]


@every_era
async def test_call_progress_reaches_the_client(served, mode) -> None:
    shown = []

    async def hear(progress, total, message):
        shown.append((progress, message))

    async with Client(served.server(), mode=mode) as client:
        result = await client.call_tool("shop_polish", {"lamp": "anna"}, progress_callback=hear)
    assert json.loads(result.content[0].text) == "it shines"
    assert [number for number, _ in shown] == sorted({number for number, _ in shown})
    words = [message for _, message in shown]
    assert words[0] == "shop.polish"
    assert "".join(words[1:]) == "shade of annafoot of annacable of anna"


@every_era
async def test_task_progress_names_its_calls(served, shop, model, mode) -> None:
    shown = []

    async def hear(progress, total, message):
        shown.append(message)

    model.writes("print(await shop.price('anna'), await shop.sell('anna'))")
    options = {"mode": mode, "elicitation_callback": says_yes}
    async with Client(served.server(), **options) as client:
        await client.call_tool("run", {"task": "Sell Anna."}, progress_callback=hear)
    assert shown == ["asks scripted", "shop.price", "shop.sell"]


@every_era
async def test_output_files_of_a_task_are_linked_and_readable(served, model, mode) -> None:
    model.writes(
        "add_to_output_files('sold.csv', [{'lamp': 'anna', 'price': 40}])\n"
        "add_to_output_files('picture.png', b'\\x89PNG')\nprint('done')"
    )
    async with Client(served.server(), mode=mode) as client:
        result = await client.call_tool("run", {"task": "Make a list."})
        text, *links = result.content
        assert text.text == "done"
        assert {link.name for link in links} == {"sold.csv", "picture.png"}
        read = {link.name: (await client.read_resource(link.uri)).contents[0] for link in links}
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError, match="there is no resource"):
            await client.read_resource("delf://somebody/else.csv")
    assert read["sold.csv"].text.split() == ["lamp,price", "anna,40"]
    assert read["sold.csv"].mime_type == "text/csv"
    assert base64.b64decode(read["picture.png"].blob) == b"\x89PNG"


@every_era
@pytest.mark.parametrize(
    ("answer", "why"), [(says_no, "too dear"), (declines, "no reason was given")]
)
async def test_rejection_reaches_the_caller(served, shop, mode, answer, why) -> None:
    async with Client(served.server(), mode=mode, elicitation_callback=answer) as client:
        result = await client.call_tool("shop_sell", {"lamp": "anna"})
    assert result.is_error
    assert why in result.content[0].text
    assert shop.sold == []


@every_era
async def test_change_by_a_client_without_elicitation_is_refused(served, shop, mode) -> None:
    async with Client(served.server(), mode=mode) as client:
        result = await client.call_tool("shop_sell", {"lamp": "anna"})
    assert result.is_error
    assert "cannot ask its user" in result.content[0].text
    assert shop.sold == []


@every_era
async def test_invalid_arguments_are_reported(served, mode) -> None:
    async with Client(served.server(), mode=mode) as client:
        wrong = await client.call_tool("shop_price", {"light": "anna"})
        unknown = await client.call_tool("shop_buy", {})
        failed = await client.call_tool("shop_price", {"lamp": "bert"})
    assert wrong.is_error
    assert "light" in wrong.content[0].text
    assert unknown.is_error
    assert "no tool 'shop_buy'" in unknown.content[0].text
    assert failed.is_error
    assert "KeyError" in failed.content[0].text


@every_era
async def test_whole_task_runs_with_its_approvals(served, shop, model, mode) -> None:
    model.writes("print(await shop.price('anna'), await shop.sell('anna'))")
    async with Client(served.server(), mode=mode, elicitation_callback=says_yes) as client:
        result = await client.call_tool("run", {"task": "Sell Anna."})
    assert result.content[0].text == "40.0 sold anna"
    assert shop.sold == ["anna"]


@every_era
@pytest.mark.parametrize("task", [None, 5, ["Sell Anna."]])
async def test_task_that_is_not_a_text_is_refused(served, model, mode, task) -> None:
    async with Client(served.server(), mode=mode) as client:
        result = await client.call_tool("run", {"task": task})
    assert (result.is_error, result.content[0].text) == (
        True,
        "run: the argument task is not a text",
    )
    assert not model.prompts


async def test_expired_question_is_withdrawn(shop, model) -> None:
    """Check that a client learns the result of a call, though its user never answers."""
    asked = []

    async def think(context, params):
        asked.append(params.message)
        return await asyncio.get_running_loop().create_future()

    model.writes(
        "import asyncio\n"
        "sales = [shop.sell('anna'), shop.sell('bert')]\n"
        "for error in await asyncio.gather(*sales, return_exceptions=True):\n"
        "    print(error)"
    )
    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    options = {"llm": "scripted", "host": host, "approval_timeout": 0.2}
    served = Served(lambda **more: Agent(tools=[shop], **options, **more))
    async with Client(served.server(), mode="legacy", elicitation_callback=think) as client:
        one_call = await client.call_tool("shop_sell", {"lamp": "anna"})
        task = await client.call_tool("run", {"task": "Sell both."})
    await served.aclose()
    assert one_call.is_error
    assert "nobody answered within" in one_call.content[0].text
    assert task.content[0].text.count("nobody answered within") == 2
    assert asked
    assert shop.sold == []


async def test_tool_with_a_name_like_a_built_in_one_is_served(model) -> None:
    @tool(effect="read", confirm=False)
    def find_tools_nearby(town: str) -> str:
        """Find shops that sell tools."""
        return f"Anna's in {town}"

    @tool(effect="read", confirm=False)
    def llm_price(model: str) -> str:
        """Return the price of a model."""
        return "1"

    host = TestHost.discover(environ={})
    host.provide(model.spec, model.factory)
    tools = [find_tools_nearby, llm_price]
    served = Served(lambda **more: Agent(tools=tools, llm="scripted", host=host, **more))
    async with Client(served.server()) as client:
        names = {item.name for item in (await client.list_tools()).tools}
        found = await client.call_tool("find_tools_nearby", {"town": "Bonn"})
    await served.aclose()
    assert names == {"run", "find_tools_nearby", "llm_price"}
    assert json.loads(found.content[0].text) == "Anna's in Bonn"


@every_era
async def test_client_gets_the_reason_if_no_tool_can_be_listed(mode, caplog) -> None:
    host = TestHost.discover(environ={})
    served = Served(lambda **more: Agent(tools=[], llm="fake", host=host, **more))
    async with Client(served.server(), mode=mode) as client:
        with pytest.raises(MCPError, match="no provider is known for the model 'fake'"):
            await client.list_tools()
        with pytest.raises(MCPError, match="no provider is known for the model 'fake'"):
            await client.call_tool("run", {"task": "Greet."})
    await served.aclose()
    assert "Traceback" not in caplog.text
