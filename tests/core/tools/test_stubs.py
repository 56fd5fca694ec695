"""Tools as Python stubs."""

import pytest

from delf import Connection, action
from delf.engine.toolset import load_toolset
from delf.tools.action import Action, action_from_function
from delf.tools.find_tools import own_tools
from delf.tools.function import tool
from delf.tools.stubs import render_stubs, stubs_of


async def stubs(connections):
    return render_stubs(bound.describe() for bound in await load_toolset(connections))


class Shop(Connection):
    """A shop with "quotes" and
    more lines."""

    @action(effect="read")
    async def find(self, status: str, limit: int = 10) -> list[dict]:
        """Find orders.

        Args:
            status: open or closed.
        """
        return []

    @action(effect="write")
    async def close(self, number: int) -> None:
        """Close an order."""


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def test_stubs_are_compact_and_parse():
    import ast

    text = await stubs([Shop(), add])
    assert text == (
        'async def add(a: int, b: int = 1) -> int:  """Add two numbers. [asks]"""\n'
        'class shop:  # A shop with "quotes" and\n'
        "    async def find(status: str, limit: int = 10) -> list[dict]:\n"
        '        """Find orders.\n'
        '        status: open or closed."""\n'
        '    async def close(number: int) -> None:  """Close an order. [asks]"""'
    )
    assert ast.parse(text)


async def test_stubs_survive_quotes_and_long_words_in_descriptions():
    import ast

    @tool(description='say """hi""" and\n\n' + "x" * 1_000)
    def odd(a: int) -> None:
        """Odd."""

    text = await stubs([odd])
    ast.parse(text)
    assert len(text) < 400


class Huge(Connection):
    """A service with very many actions."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    async def actions(self) -> list[Action]:
        async def get(key: str, deep: bool = False) -> dict:
            """Get one of the many things."""
            return {}

        made = (
            action_from_function(get, name=f"get_{n}", effect="write") for n in range(self.count)
        )
        return list(made)


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (200, "async def get_7(key: str, deep: bool = False) -> dict:"),
        (
            240,
            'async def get_7(key: str, deep=...) -> dict:  """Get one of the many things. [asks]"""',
        ),
        (400, "get_7(key, ...)  # Get one of the many things. [asks]"),
        (5000, "    # ... and "),
    ],
)
async def test_the_stubs_of_a_connection_stay_within_a_budget(count: int, line: str) -> None:
    text = await stubs([Huge(count)])
    assert line in text
    assert len(text) < 25_000


def read(number):
    @tool(name=f"read_{number}", effect="read", confirm=False)
    async def made(key: str, deep: bool = False) -> dict:
        """Read one of the many things that there are."""

    return made


async def test_what_was_chosen_of_many_is_shown_in_little_room_what_fits_best_whole():
    @tool(effect="read", confirm=False)
    async def pay_invoice(number: int, note: str = "") -> str:
        """Pay an invoice."""

    tools = await load_toolset([*map(read, range(36)), pay_invoice])
    chosen = tools.showing(frozenset(bound.name for bound in tools))
    own = own_tools(chosen.choice())
    shown = [b.describe() for b in await chosen.with_builtins(own)]
    text = stubs_of(shown, "pay the invoice 7")
    assert "async def find_tools(words: str) -> str:" in text
    assert 'async def pay_invoice(number: int, note: str = "") -> str:' in text.replace("''", '""')
    assert len(text) < 3_500
    assert len(stubs_of([b.describe() for b in tools], "pay the invoice 7")) > 3_500


async def test_there_is_nothing_to_find_where_all_is_shown_whole():
    tools = await load_toolset([read(1), read(2)])
    chosen = tools.showing(frozenset({"read_1", "read_2"}))
    assert own_tools(chosen.choice()) == ()
    (find,) = own_tools(tools.showing(frozenset({"read_1"})).choice())
    (found,) = await find.actions()
    assert "1 more tools" in found.summary
    assert "def read_2(" in await found.call(words="read 2")
