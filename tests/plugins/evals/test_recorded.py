import pytest

from delf import Connection, action
from delf.protocols.connection import SupportsClose, SupportsContext, SupportsLearning
from delf_evals.recorded import RecordedConnection


class Desk(Connection):
    """A desk."""

    @action(effect="read")
    async def tickets(self) -> list[str]:
        """List the tickets."""
        return []

    async def context(self, task: str) -> str | None:
        """Describe the desk."""
        return "The desk is open."

    async def aclose(self) -> None:
        """Close the desk."""

    async def learn(self, finished: object) -> None:
        """Learn from a task."""


@pytest.mark.parametrize(
    ("protocol", "is_kept"),
    [(SupportsClose, True), (SupportsContext, True), (SupportsLearning, False)],
)
def test_recorded_connection_has_the_optional_methods_that_change_nothing(protocol, is_kept):
    recorded = RecordedConnection(Desk(name="desk"))
    assert isinstance(recorded, protocol) == is_kept


def test_recorded_connection_has_the_attributes_that_agents_read():
    desk = Desk(name="desk", trust="own", contents={"tickets": ()})
    recorded = RecordedConnection(desk)
    # Agents redact the secrets of the settings, and apply what users declare.
    for name in ("settings", "trust", "contents", "description_trust"):
        assert getattr(recorded, name) == getattr(desk, name)
