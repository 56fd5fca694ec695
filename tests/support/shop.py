"""A connection and a function with simple signatures."""

from delf import Connection, action, tool


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
