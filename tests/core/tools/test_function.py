import inspect
from typing import Annotated

import pytest
from pydantic import Field

from delf.errors import ToolDefinitionError
from delf.protocols.connection import ConnectionLike
from delf.tools.function import tool


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
    """
    return a + b


@tool(name="look_up", description="Finds it.", confirm=False, effect="read", handle_error="nothing")
async def search(query: str) -> str:
    return query


def test_decorated_tool_still_behaves_as_the_function():
    assert add(1, b=2) == 3
    assert add.__name__ == "add"
    assert add.__doc__ is not None
    assert add.__doc__.startswith("Add two numbers.")
    assert inspect.signature(add) == inspect.signature(add.function)


async def test_decorated_async_tool_is_still_awaitable():
    assert await search("x") == "x"


async def test_tool_is_a_connection_with_one_action():
    assert isinstance(add, ConnectionLike)
    (action,) = await add.actions()
    assert (add.name, action.name, add.is_function) == ("add", "add", True)
    assert action.signature == "(a: int, b: int = 1) -> int"
    assert action.call(a=1) == 2


def test_undeclared_tool_is_irreversible_and_needs_approval():
    assert (add.confirm, add.allow) == (True, None)
    assert (add.action.effect, add.action.handle_error) == ("irreversible", None)
    assert add.description == add.summary == "Add two numbers."


def test_tool_decorator_sets_options():
    assert (search.name, search.summary, search.confirm) == ("look_up", "Finds it.", False)
    assert (search.action.effect, search.action.handle_error) == ("read", "nothing")
    assert search.action.is_async


def test_handle_error_accepts_a_function_or_none():
    def tell(error):
        return "told"

    assert tool(handle_error=tell)(lambda_named).action.handle_error is tell
    assert tool(handle_error="text")(lambda_named).action.handle_error is str
    for nothing in (True, False, None):
        assert tool(handle_error=nothing)(lambda_named).action.handle_error is None


def lambda_named(x: int) -> int:
    return x


def test_tool_inspect_returns_its_description():
    assert add.inspect() == {
        "tool": "add",
        "description": "Add two numbers.",
        "methods": ["add"],
        "total": 1,
    }
    (method,) = add.inspect(verbose=True)["methods"]
    assert method["parameters"][0] == {
        "name": "a",
        "type": "int",
        "required": True,
        "description": "The first.",
    }
    assert repr(add) == "<tool add(a: int, b: int = 1) -> int>"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tool(3), "@tool needs a function, got int"),
        (lambda: tool(handle_error=3)(lambda_named), "handle_error of lambda_named is a int"),
        (
            lambda: tool(confirm="yes")(lambda_named),
            "confirm of lambda_named must be True or False",
        ),
        (lambda: tool(effect="maybe")(lambda_named), "unknown effect 'maybe'"),
        (lambda: tool(name="look up")(lambda_named), "'look up' cannot be called from a script"),
        (lambda: tool(lambda x: x), "'<lambda>' cannot be called from a script"),
        (lambda: tool(bad_type), r"bad_type: "),
        (lambda: tool(many), r"many takes \*words"),
    ],
    ids=range(8),
)
def test_invalid_tool_function_is_refused_at_definition(make, message):
    with pytest.raises(ToolDefinitionError, match=message):
        make()


def bad_type(x: Annotated[str, Field(pattern="(")]) -> None: ...


def many(*words: str) -> None: ...


def test_tool_name_is_accepted_as_first_argument():
    @tool("lookup", effect="read")
    def find(words: str) -> str:
        """Find."""
        return words

    assert find.name == "lookup"
    with pytest.raises(ToolDefinitionError, match="two names, 'a' and 'b'"):
        tool("a", name="b")
