"""Tests that a started agent has all its resources, and a failed start leaves none open."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from delf import AgentConfig, ConfigurationError
from delf.errors import DelfError
from delf.protocols.approval import ApprovalRequest, Decision, Rejected
from delf.protocols.embedder import EmbeddingKind, Vectors
from delf.protocols.journal import Journal
from delf.protocols.strategy import StrategyHost
from delf.specs import ApprovalSpec, EmbedderSpec, StrategySpec
from delf.testing import TestHost
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


class Pager:
    """An approval channel that counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def decide(self, request: ApprovalRequest) -> Decision:
        return Rejected("nobody is there")

    async def aclose(self) -> None:
        self.closed += 1


class StuckPager(Pager):
    """An approval channel that cannot use the journal."""

    def use_journal(self, journal: Journal) -> None:
        raise ConfigurationError("no number")


class Walk:
    """A strategy that counts how often it is closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def solve(self, host: StrategyHost) -> str:
        return host.task

    async def aclose(self) -> None:
        self.closed += 1


class Letters:
    """An embedder with a model of its name."""

    dimension = 1
    batch_size = 1

    def __init__(self, model: str = "default") -> None:
        self.model = model

    async def embed(self, texts: Sequence[str], kind: EmbeddingKind = "passage") -> Vectors:
        return [[float(len(text))] for text in texts]


def parts_of(host: TestHost, *connections: Connection, **options: Any) -> AgentParts:
    config = AgentConfig(llm="scripted", **options)
    return AgentParts(
        agent_id="agent_1",
        config=config,
        context=AgentContext.of(None, host, config),
        connections=[as_connection(item) for item in connections],
        ledger=Ledger(),
    )


@pytest.mark.usefixtures("scripted_model")
async def test_failed_start_leaves_nothing_open(delf_host: TestHost) -> None:
    desk = Desk("desk")
    with pytest.raises(ConfigurationError, match="no leases"):
        await Resources.open(parts_of(delf_host, desk, lease=5.0))
    assert desk.closed == 1


@pytest.mark.usefixtures("scripted_model")
@pytest.mark.parametrize("fault", ["factory", "use_journal"])
async def test_failed_start_closes_approval_channels(delf_host: TestHost, fault: str) -> None:
    pager = Pager()

    def make_stuck() -> StuckPager:
        if fault == "factory":
            raise ConfigurationError("no number")
        return StuckPager()

    for name, make in (("pager", lambda: pager), ("stuck", make_stuck)):
        delf_host.provide(ApprovalSpec(name=name, summary="Calls.", factory="x:y"), make)
    with pytest.raises(DelfError, match="no number"):
        await Resources.open(parts_of(delf_host, approvals=["pager", "stuck"]))
    assert pager.closed == 1


@pytest.mark.usefixtures("scripted_model")
async def test_close_continues_after_a_failing_part(
    delf_host: TestHost, caplog: pytest.LogCaptureFixture
) -> None:
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


@pytest.mark.usefixtures("scripted_model")
async def test_plugin_object_is_made_once_and_closed_with_the_agent(delf_host: TestHost) -> None:
    made = list[Walk]()

    def make() -> Walk:
        made.append(Walk())
        return made[-1]

    delf_host.provide(StrategySpec(name="walk", summary="Walks.", factory="x:y"), make)
    async with await Resources.open(parts_of(delf_host)) as resources:
        assert not made
        assert resources.plugin(StrategySpec, "walk") is resources.strategy("walk")
        assert made[0].closed == 0
    assert [walk.closed for walk in made] == [1]


@pytest.mark.usefixtures("scripted_model")
async def test_plugin_object_receives_the_value_that_selected_it(delf_host: TestHost) -> None:
    spec = EmbedderSpec(name="letters", summary="L.", factory="x:y", serves=("letters/*",))
    delf_host.provide(spec, Letters)
    async with await Resources.open(parts_of(delf_host)) as resources:
        assert resources.plugin(EmbedderSpec, "letters").model == "default"
        assert resources.plugin(EmbedderSpec, "letters/3").model == "letters/3"
