"""Tests of texts for models and people: stubs, the task's context, previews, the output folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from delf.errors import ConnectionConfigurationError, ToolDefinitionError
from delf_engine.approvals.judges import named_actions
from delf_engine.output import OutputFolder
from delf_engine.task import TaskContext
from delf_engine.toolset import check_connection_names, load_toolset
from support.shop import Shop, add

# -- context ------------------------------------------------------------------------------


def test_context_precedes_the_task_in_the_prompt():
    context = TaskContext(facts=["likes tea"], live={"sql": "users(id)"}, files=["/in.csv"])
    text = context.message("the task").text
    (known,) = context.facts_message()
    assert "likes tea" in known.text
    places = [text.index(part) for part in ("users(id)", "/in.csv", "the task")]
    assert places == sorted(places)


# -- toolset --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["print", "rerun", "add_to_output_files", "asyncio", "ToolError", "open", "list"]
)
def test_reserved_tool_names_are_refused(name: str):
    with pytest.raises(ToolDefinitionError, match="scripts need that name"):
        check_connection_names([Shop(name=name)])


async def test_duplicate_tool_names_are_refused():
    with pytest.raises(ToolDefinitionError, match="two tools are named 'shop'"):
        await load_toolset([Shop(), Shop()])


async def test_dynamic_action_names_in_allow_are_checked_after_loading():
    shop = Shop()
    shop.allow = ("fnd",)
    with pytest.raises(ConnectionConfigurationError, match="did you mean 'find'"):
        await load_toolset([shop])


async def test_dynamic_group_named_like_an_action_is_refused_after_loading():
    class Dynamic(Shop):
        async def actions(self):
            found = await super().actions()
            return [replace(item, permission="find") for item in found]

    with pytest.raises(ToolDefinitionError, match="'close' is in the group 'find'"):
        await load_toolset([Dynamic(name="shop")])


async def test_hidden_tools_stay_callable():
    tools = await load_toolset([Shop(), add])
    part = tools.showing(frozenset({"shop.find", "add", "other"}))
    assert [bound.name for bound in part.shown] == ["shop.find", "add"]
    choice = part.choice()
    assert ([tool.name for tool in choice.shown], choice.left_out) == (["shop.find", "add"], 1)
    assert choice.describe("shop.close").signature == "(number: int) -> None"
    assert len(part) == len(tools) == 3
    assert [entry.name for entry in part.catalog()] == ["shop.find", "shop.close", "add"]
    assert [c.name for c in part.connections] == ["shop", "add"]


# -- preview --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("await shop.close(1)", ("shop.close",)),
        ("f = shop.close\nx = [add]", ("shop.close", "add")),
        ("await shop.find('x')", ()),
        ("x = = 1", ()),
        ("'shop.close'", ()),
        ("\0", ()),
    ],
)
async def test_named_actions_are_those_of_a_script_that_need_approval(
    code: str, names: tuple[str, ...]
):
    named = named_actions(code, await load_toolset([Shop(), add]))
    assert tuple(bound.name for bound in named) == names


# -- output folder --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "", ".", "a\0"])
def test_output_name_outside_the_folder_is_refused(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="name"):
        OutputFolder(str(tmp_path)).write(name, b"x")
