"""Tests of fallbacks, which are asked if the first model is not available."""

from collections import deque

import pytest

from delf import Agent, LLMConfig
from delf.errors import BudgetExceededError, LLMExecutionError, ModelConfigurationError
from delf.events import ModelCalled, ModelFailed, ScriptFinished, Warned
from delf.messages import ModelDelta, ModelReply, Price
from delf.specs import JournalSpec, ModelSpec
from delf_engine.config import llm_config
from support.cut_journal import CutJournal


class Scripted:
    """Two models that behave as the test says."""

    def __init__(self, host):
        self.asked, self.prices = [], {}
        self.does = {"first": "print(1)", "second": "print(2)"}
        spec = ModelSpec(name="pair", factory="x:y", summary="x", serves=("first", "second"))
        host.provide(spec, lambda config: Model(self, config.model))


class Keyed(Scripted):
    """A provider of one model that accepts some keys and refuses others."""

    def __init__(self, host, **refused):
        self.asked, self.prices, self.refused = [], {}, refused
        spec = ModelSpec(name="keyed", factory="x:y", summary="x", serves=("big",))
        host.provide(spec, lambda config: Model(self, config.api_key))
        self.does = {
            key: refused.get(key, "print('done')") for key in ("key_one", "key_two", "key_three")
        }


class Model:
    def __init__(self, models, name):
        self.models, self.name = models, name

    async def complete(self, request):
        self.models.asked.append(self.name)
        found = self.models.does[self.name]
        if isinstance(found, list):
            found = found.pop(0)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, ModelReply):
            return found
        return ModelReply(text=f"```python\n{found}\n```", model=self.name, cost_usd=0.25)

    async def price(self):
        return self.models.prices.get(self.name) if self.models.prices else None

    async def stream(self, request):
        found = self.models.does[self.name]
        if isinstance(found, tuple):
            self.models.asked.append(self.name)
            yield ModelDelta(found[0])
            raise found[1]
        yield await self.complete(request)

    async def aclose(self):
        """Nothing is held."""


@pytest.fixture
def models(delf_host):
    return Scripted(delf_host)


@pytest.fixture
def run(delf_host, models):
    async def run(**options):
        options = {"llm": ["first", "second"], "journal": "none", "retry_count": 0, **options}
        async with Agent(host=delf_host, sandbox="local", **options) as agent:
            events = []
            response = await agent.arun("x", listeners=[events.append])
            return response, events

    return run


@pytest.mark.parametrize(
    "failure",
    [
        LLMExecutionError("overloaded", status=529),
        LLMExecutionError("rate limit", status=429),
        LLMExecutionError("wrong key", status=401),
        LLMExecutionError("no credit", status=402),
        LLMExecutionError("unknown model", status=404),
        LLMExecutionError("not reachable"),
        LLMExecutionError("the prompt is too long", status=400, too_long=True),
    ],
    ids=str,
)
async def test_fallback_is_used_if_a_model_is_unavailable(run, models, failure):
    models.does["first"] = failure
    response, events = await run()
    assert (response.text, models.asked) == ("2", ["first", "second"])
    assert response.cost_usd == 0.25
    assert [e.model for e in events if isinstance(e, ModelCalled)] == ["first", "second"]
    assert [e.model for e in events if isinstance(e, ModelFailed)] == ["first"]
    (warning,) = [e.message for e in events if isinstance(e, Warned) and "is asked" in e.message]
    assert warning == f"first is not available, so second is asked: {failure.message}"


async def test_fallback_is_not_used_after_a_bad_request(run, models):
    models.does["first"] = LLMExecutionError("bad request", status=400)
    response, _ = await run()
    assert (response.status, models.asked) == (False, ["first"])


async def test_fallback_is_not_used_after_a_started_answer(run, models):
    broken = LLMExecutionError("broke off", status=502)
    models.does["first"] = ("```python\nprint(1)\n", broken)
    _, events = await run(stream=True)
    assert not [e for e in events if isinstance(e, Warned) and "is asked" in e.message]


async def test_cut_answer_is_begun_anew_by_a_fallback(run, models):
    cut = ModelReply(text="```python\nprint(1)\n", model="first", finish_reason="length")
    models.does["first"] = [cut, LLMExecutionError("overloaded", status=529)]
    response, events = await run()
    assert (response.text, models.asked) == ("2", ["first", "first", "second"])
    assert [e.message for e in events if isinstance(e, Warned) and "is asked" in e.message]


async def test_resumed_task_keeps_the_answer_of_a_fallback(delf_host, models):
    journal = CutJournal()
    spec = JournalSpec(name="cut", factory="x:y", summary="x")
    delf_host.provide(spec, lambda **_: journal)
    models.does = {
        "first": LLMExecutionError("away"),
        "second": "rerun(context='half', remaining='rest')",
    }
    options = {"llm": ["first", "second"], "journal": "cut", "sandbox": "local"}
    async with Agent(host=delf_host, rerun_count=1, **options) as agent:
        response = await agent.arun("x")
    await journal.ended_with(response.trace.task_id, ScriptFinished, first=True)
    models.asked.clear()
    models.does["first"] = "print('back')"
    async with Agent(host=delf_host, rerun_count=1, **options) as agent:
        response = await agent.aresume(response.trace.task_id)
    # The answer of the fallback is the recorded one; the next question goes to the first again.
    assert (response.text, models.asked, response.cost_usd) == ("back", ["first"], 0.5)
    named = [e.model for e in response.events if isinstance(e, ModelCalled)]
    assert named == ["first", "second", "first"]


async def test_budget_is_checked_with_the_price_of_the_fallback(run, models):
    cheap, dear = (Price(input=usd, output=usd, cached_input=usd) for usd in (0.01, 10_000.0))
    models.prices = {"first": cheap, "second": dear}
    models.does["first"] = LLMExecutionError("away")
    with pytest.raises(BudgetExceededError, match="would cost about"):
        await run(budget_usd=0.5)
    assert models.asked == ["first"]


async def test_last_failure_is_raised_if_all_models_fail(run, models):
    models.does = {name: LLMExecutionError(f"{name} is away") for name in ("first", "second")}
    response, _ = await run()
    assert "second is away" in str(response.error)


async def test_failed_model_is_used_last_for_a_minute(run, models):
    models.does["first"] = LLMExecutionError("away")
    models.does["second"] = "raise ValueError(1)"
    await run(retry_count=1)
    assert models.asked == ["first", "second", "second"]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["a", "b", "c"], ["a", "b", "c"]),
        ([{"model": "a", "base_url": "http://x"}, "b"], ["a", "b"]),
        ({"model": "a", "fallbacks": ["b", {"model": "c"}]}, ["a", "b", "c"]),
        (("a", LLMConfig("b")), ["a", "b"]),
        ({"model": "a", "fallbacks": "other"}, ["a", "other"]),
        ({"model": "a", "fallbacks": {"model": "other"}}, ["a", "other"]),
        (LLMConfig("a", fallbacks="other"), ["a", "other"]),
        (LLMConfig("a", fallbacks=deque(["b", "c"])), ["a", "b", "c"]),
        ({"model": "a", "fallbacks": deque(["b", "c"])}, ["a", "b", "c"]),
    ],
)
def test_model_list_is_a_model_with_fallbacks(given, names):
    config = llm_config(given)
    assert [config.model, *(one.model for one in config.fallbacks)] == names


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["a", 3],
        [None],
        ["a", "b", "a"],
        {"model": "a", "fallbacks": ["a"]},
        {"model": "a", "fallbacks": 3},
        [{"model": "a", "api_key": "k"}, {"model": "a", "api_key": "k"}],
        [{"model": "a", "api_key": ""}, {"model": "a", "api_key": "k"}],
        {"model": "a", "api_key": "  "},
    ],
)
def test_invalid_model_list_is_refused(given):
    with pytest.raises(ModelConfigurationError):
        llm_config(given)


def test_fallbacks_are_shown_with_the_models(delf_host, models):
    agent = Agent(host=delf_host, llm=["first", "second"])
    assert agent.info()["models"] == {"llm": "first", "llm fallback 1": "second"}


async def test_provider_keys_are_used_in_turn(delf_host):
    limited = LLMExecutionError("rate limit", status=429)
    models = Keyed(delf_host, key_one=limited, key_two=LLMExecutionError("no credit", status=402))
    keys = [{"model": "big", "api_key": key} for key in ("key_one", "key_two", "key_three")]
    events = []
    async with Agent(host=delf_host, sandbox="local", llm=keys, journal="none") as agent:
        response = await agent.arun("x", listeners=[events.append])
    assert (response.text, models.asked) == ("done", ["key_one", "key_two", "key_three"])
    warned = [event.message for event in events if isinstance(event, Warned)]
    assert [text for text in warned if "big with another key is asked" in text] == [
        "big is not available, so big with another key is asked: rate limit",
        "big is not available, so big with another key is asked: no credit",
    ]
    assert not any("key_one" in str(event) for event in events), "no key is shown"


async def test_refused_key_is_used_last_for_some_time(delf_host):
    models = Keyed(delf_host, key_one=LLMExecutionError("rate limit", status=429))
    keys = [{"model": "big", "api_key": key} for key in ("key_one", "key_two")]
    models.does["key_two"] = "rerun('more', 'go on')"
    async with Agent(host=delf_host, sandbox="local", llm=keys, journal="none") as agent:
        await agent.arun("x", timeout=20)
    assert models.asked[:3] == ["key_one", "key_two", "key_two"], (
        "the first key is not tried again at once"
    )
