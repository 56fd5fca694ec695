"""Tests that models are opened once, and that calls are counted, recorded and within the budget."""

import pytest

from delf.errors import (
    BudgetExceededError,
    LLMExecutionError,
)
from delf.llm import LLMConfig
from delf.messages import (
    ModelDelta,
    ModelReply,
    ModelRequest,
    Price,
    ToolCall,
    ToolResult,
    Usage,
    assistant,
    results,
    system,
    user,
)
from delf.protocols.context import PluginContext
from delf.specs import ModelSpec
from delf.testing import ScriptedModel
from delf_devkit.testing.hosts import TestHost
from delf_engine.journal.in_process import InProcessJournal
from delf_engine.journal.log import TaskLog
from delf_engine.models.client import ModelClient
from delf_engine.models.money import Ledger
from delf_engine.models.pool import ModelPool
from delf_engine.project.prices import Prices
from delf_engine.redact import Redactor


@pytest.fixture
def host():
    return TestHost([])


class Model:
    def __init__(self, context, config):
        self.config, self.closed, self.asked = config, 0, []
        self.error = None
        self.fees = 0.0

    async def complete(self, request):
        self.asked.append(request)
        if self.error:
            raise self.error
        return ModelReply(
            text="hi",
            model=self.config.model,
            usage=Usage(input_tokens=10, output_tokens=5),
            cost_usd=0.25,
            fees_usd=self.fees,
        )

    async def stream(self, request):
        yield ModelDelta("h")
        yield ModelDelta("i")
        yield await self.complete(request)

    async def aclose(self):
        self.closed += 1


@pytest.fixture
def pool(host):
    host.provide(ModelSpec(name="fake", summary="s", factory="x:y", serves=("*",)), Model)
    return ModelPool(host, PluginContext())


def asker(pool, ledger=None, **options):
    log = TaskLog("t", InProcessJournal(), [])
    pool.find_own_price = options.pop("pricing", Prices({}).find)
    return ModelClient(
        pool=pool,
        ledger=ledger or Ledger(),
        log=log,
        **options,
    )


M = LLMConfig(model="m")
REQUEST = ModelRequest(messages=(system("rules"), user("task")))


async def test_model_client_is_opened_once_per_configuration(pool):
    other = LLMConfig(model="m", api_key="k")
    assert pool.get(M) is pool.get(LLMConfig(model="m"))
    assert pool.get(other) is not pool.get(M)
    models = [pool.get(M), pool.get(other)]
    await pool.aclose()
    assert [model.closed for model in models] == [1, 1]


async def test_model_call_is_counted_and_recorded(pool):
    ledger = Ledger()
    it = asker(pool, ledger)
    reply = await it.ask(M, REQUEST)
    assert (reply.text, reply.cost_usd) == ("hi", 0.25)
    assert (ledger.cost_usd, ledger.usage.total_tokens) == (0.25, 15)
    assert [type(e).__name__ for e in it.log.events] == ["ModelCalled", "ModelReplied"]


async def test_failed_model_call_is_recorded_and_raised(pool):
    it = asker(pool)
    pool.get(M).error = LLMExecutionError("no")
    with pytest.raises(LLMExecutionError):
        await it.ask(M, REQUEST)
    assert [type(e).__name__ for e in it.log.events] == ["ModelCalled", "ModelFailed"]


async def test_system_prompt_comes_after_the_rules(pool):
    it = asker(pool, system_prompt="be kind")
    await it.ask(M, REQUEST)
    await it.ask(M, ModelRequest(messages=(user("question"),)))
    roles = [[m.role for m in request.messages] for request in pool.get(M).asked]
    assert roles == [["system", "system", "user"], ["system", "user"]]
    assert pool.get(M).asked[0].messages[0] == REQUEST.messages[0]


async def test_streamed_reply_yields_pieces_and_the_whole(pool):
    pieces = []
    reply = await asker(pool, stream=True, on_delta=pieces.append).ask(M, REQUEST)
    assert ([piece.text for piece in pieces], reply.text) == (["h", "i"], "hi")


async def test_recorded_reply_calls_contain_no_secret(host):
    redactor = Redactor(["hunter2hunter2"])
    call = ToolCall(id="1", name="run", arguments='{"code": "hunter2hunter2"}')
    model = ScriptedModel().says(ModelReply(text="so", model="m", calls=(call,)))
    host.provide(ModelSpec(name="m", summary="s", factory="x:y", serves=("*",)), model.factory)
    pool = ModelPool(host, PluginContext())
    pieces = []
    it = asker(pool, stream=True, on_delta=pieces.append, redactor=redactor)
    brought = results([ToolResult(id="0", name="run", text="it is hunter2hunter2")])
    reply = await it.ask(M, ModelRequest(messages=(user("q"), assistant("", [call]), brought)))
    assert "hunter2" not in repr(model.requests)
    assert "hunter2" not in repr(reply)
    assert "".join(piece.text for piece in pieces) == "so"
    [_, replied] = it.log.events
    assert replied.calls == reply.calls


async def test_model_is_not_called_over_the_budget(pool):
    ledger = Ledger(0.5)
    it = asker(pool, ledger)
    await it.ask(M, REQUEST)
    await it.ask(M, REQUEST)
    with pytest.raises(BudgetExceededError, match=r"\$0.5 is used up \(\$0.500000 spent\)"):
        await it.ask(M, REQUEST)
    assert len(pool.get(M).asked) == 2
    ledger.reset(1)
    await it.ask(M, REQUEST)


@pytest.mark.parametrize(("priced", "cost"), [("m", 10e-6), ("n", 0.25)])
async def test_user_price_overrides_the_provider_price(pool, priced, cost):
    prices = Prices({priced: Price(input=0, output=2, cached_input=0)})
    reply = await asker(pool, pricing=prices.find).ask(M, REQUEST)
    assert reply.cost_usd == pytest.approx(cost)


@pytest.mark.parametrize(("fees", "cost"), [(0.02, 0.02 + 10e-6), (None, None)])
async def test_fees_are_added_to_the_user_price(pool, fees, cost):
    pool.get(M).fees = fees
    prices = Prices({"m": Price(input=0, output=2, cached_input=0)})
    reply = await asker(pool, pricing=prices.find).ask(M, REQUEST)
    assert reply.cost_usd == pytest.approx(cost)
