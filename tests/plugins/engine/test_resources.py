"""What a started agent holds is whole, or nothing of it is open."""

import logging

import pytest

from delf import AgentConfig, ConfigurationError
from delf.tools.action import action
from delf.tools.connection import Connection
from delf.tools.function import as_connection
from delf_engine.agent_context import AgentContext
from delf_engine.models.money import Ledger
from delf_engine.resources import AgentParts, Resources


class Desk(Connection):
    """A connection that counts how often it is closed."""

    def __init__(self, name: str, *, breaks: bool = False) -> None:
        super().__init__(name=name)
        self.breaks = breaks
        self.closed = 0

    @action(effect="read")
    async def find(self) -> list[str]:
        """Tickets."""
        return []

    async def aclose(self) -> None:
        self.closed += 1
        if self.breaks:
            raise OSError("the desk is stuck")


def parts_of(host, *connections, **options):
    config = AgentConfig(llm="scripted", **options)
    return AgentParts(
        agent_id="agent_1",
        config=config,
        context=AgentContext.of(None, host, config),
        connections=[as_connection(item) for item in connections],
        ledger=Ledger(),
    )


async def test_failed_start_leaves_nothing_open(delf_host, scripted_model):
    desk = Desk("desk")
    with pytest.raises(ConfigurationError, match="no leases"):
        await Resources.open(parts_of(delf_host, desk, lease=5.0))
    assert desk.closed == 1


async def test_close_continues_after_a_failing_part(delf_host, scripted_model, caplog):
    stuck, desk = Desk("stuck", breaks=True), Desk("desk")
    async with await Resources.open(parts_of(delf_host, stuck, desk)) as resources:
        assert resources.sandbox.spec.name
        assert (stuck.closed, desk.closed) == (0, 0)
    assert (stuck.closed, desk.closed) == (1, 1)
    text = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    (line,) = (line for line in text if line.startswith("while stopping"))
    assert "the connection 'stuck' (test_resources.Desk) failed in aclose()" in line.replace(
        __name__, "test_resources"
    )
    assert "OSError: the desk is stuck" in line
