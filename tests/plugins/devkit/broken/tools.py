"""Sets of tools that break one thing each."""

from functools import partial

import pytest

from delf import ToolException, tool
from delf.testing import Call, ToolsContract


@tool(effect="read", trust="own")
def stock(product: str) -> int:
    """Count the pieces of a product."""
    if product == "none":
        raise ToolException(f"there is no product {product!r}")
    return len(product)


@tool(effect="write")
async def order(product: str, pieces: int = 1) -> str:
    """Order pieces of a product."""
    return f"{pieces} of {product}"


class Suite(ToolsContract):
    seconds = 3.0
    calls = (Call("stock", product="desk lamp"), Call("order", product="desk lamp", pieces=2))
    failing_calls = (Call("stock", product="none"),)
    made = (stock, order)

    @pytest.fixture
    def tools(self):
        return list(self.made)


def doubled(factor: int, number: int) -> int:
    """Multiply a number."""
    return factor * number


class TestGood(Suite):
    passes = (
        "test_connection_works_in_a_task",
        "test_actions_have_descriptions",
        "test_inspect_describes_the_connection",
        "test_tool_names_are_unique",
        "test_tools_declare_results",
        "test_use_leaves_the_process_unchanged",
    )


class TestGoodPartials(Suite):
    passes = ("test_tools_declare_results", "test_calls_can_overlap")
    calls = (Call("twice", number=4),)
    failing_calls = ()
    made = (tool(name="twice", effect="read")(partial(doubled, 2)),)


class TestTwoOfOneName(Suite):
    breaks = ("test_tool_names_are_unique",)
    says = "two tools are called 'stock'"
    made = (stock, order, tool("stock", effect="read")(doubled))


@tool
def guess(product: str) -> int:
    """Guess the price of a product."""
    return len(product)


class TestHasNoEffect(Suite):
    breaks = ("test_actions_have_descriptions",)
    says = "guess has no effect"
    made = (stock, order, guess)


def plain(product: str) -> int:
    """Count the pieces of a product."""
    return len(product)


class TestIsAPlainFunction(Suite):
    breaks = ("test_actions_have_descriptions",)
    says = "plain has no effect"
    made = (stock, order, plain)


@tool(effect="read")
def silent(product: str):
    """Count the pieces of a product."""
    return len(product)


class TestHasNoResultType(Suite):
    breaks = ("test_tools_declare_results",)
    says = "silent does not say what it returns"
    made = (stock, order, silent)


@tool(effect="read")
def undocumented(product: str) -> int:
    return len(product)


class TestHasNoDocstring(Suite):
    breaks = ("test_actions_have_descriptions",)
    says = "without a docstring: ['undocumented']"
    made = (stock, order, undocumented)
