"""Tests that a budget limits costs in advance, by estimates, reservations and prices."""

from __future__ import annotations

import asyncio
import json
import math
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delf.errors import BudgetExceededError, ConfigurationError
from delf.llm import LLMConfig
from delf.messages import FilePart, ImagePart, ModelRequest, ModelTool, Price, Usage, user
from delf_engine.models.estimates import Estimate
from delf_engine.models.money import Ledger
from delf_engine.models.pool import FindPrice, load_pricing
from delf_engine.project.prices import Prices
from delf_model_providers.families import SUPPORTED_PROVIDERS

M = LLMConfig("m")
PRICE = Price(input=1.0, output=10.0, cached_input=0.1)


def request(text: str = "x" * 300, **options: Any) -> ModelRequest:
    return ModelRequest(messages=(user(text, options.pop("parts", ())),), **options)


def costs(expected: float, most: float = 0.0) -> Callable[[], Estimate]:
    return lambda: Estimate(expected, max(most, expected))


# -- estimates ------------------------------------------------------------------------------


def test_ledger_permits_the_first_call_at_any_cost() -> None:
    assert Ledger().estimate(M, request(), PRICE) == pytest.approx((100e-6, math.inf))
    assert Ledger().estimate(M, request(), None) == (0.0, math.inf)


def test_ledger_counts_the_bytes_of_tools() -> None:
    def expected_cost(description: str) -> float:
        tool = ModelTool(name="send", description=description, parameters={})
        return Ledger().estimate(M, request(tools=(tool,)), PRICE).expected

    # In UTF-8, "発" has three bytes.
    assert expected_cost("発" * 300) == pytest.approx(expected_cost("x" * 900))


def test_ledger_estimates_with_the_maximum_output() -> None:
    ledger = Ledger()
    ledger.learn_cost(M, request(), 0.0)
    limited = LLMConfig("m", settings={"max_tokens": 7})
    assert ledger.estimate(limited, request(), PRICE) == pytest.approx((170e-6, 170e-6))
    own = request(settings={"max_tokens": 3})
    assert ledger.estimate(limited, own, PRICE) == pytest.approx((130e-6, 130e-6))
    listed = Price(input=0.0, output=10.0, cached_input=0.0, max_output_tokens=1000)
    assert ledger.estimate(M, request(), listed) == pytest.approx((0.0, 10_000e-6))


def test_ledger_estimates_images_and_documents() -> None:
    parts = (ImagePart(b"x", "image/png"), FilePart("a.pdf", b"x" * 100_000, "application/pdf"))
    found = Ledger().estimate(M, request("", parts=parts), PRICE)
    assert found.expected == pytest.approx(5600e-6)
    notes = FilePart("a.txt", b"x" * 300, "text/plain")
    found = Ledger().estimate(M, request("", parts=(notes,)), PRICE)
    assert found.expected == pytest.approx(100e-6)


@pytest.mark.parametrize("price", [None, PRICE])
def test_ledger_expects_at_least_the_most_expensive_reply(
    price: Price | None,
) -> None:
    ledger = Ledger()
    for cost in (0.25, 0.5, None):
        ledger.learn_cost(M, request(), cost)
    assert Ledger(outer_ledger=ledger).estimate(M, request(), price) == (0.5, 0.5)
    assert ledger.estimate(M, request(purpose="call"), price).maximum == math.inf


# -- reservations ---------------------------------------------------------------------------


async def test_over_budget_call_is_refused_with_the_figures() -> None:
    ledger = Ledger(1.0)
    ledger.add(Usage(), 0.75)
    with pytest.raises(
        BudgetExceededError, match=r"about \$0.500000, and of .* \$1 only"
    ) as caught:
        async with ledger.reserved(costs(0.5)):
            raise AssertionError("was let through")
    error = caught.value
    assert (error.limit_usd, error.cost_usd, error.expected_usd) == (1.0, 0.75, 0.5)
    assert (error.code, "reset_budget" in (error.hint or "")) == ("AGT-006", True)
    assert pickle.loads(pickle.dumps(error)).expected_usd == 0.5
    assert (ledger.remaining_usd, ledger.is_exhausted, ledger.reserved_usd) == (0.25, False, 0.0)


async def test_reservation_is_released_on_failure_and_cancellation() -> None:
    ledger = Ledger(1.0)
    with pytest.raises(ZeroDivisionError):
        async with ledger.reserved(costs(0.5)):
            assert ledger.reserved_usd == 0.5
            raise ZeroDivisionError
    assert ledger.reserved_usd == 0.0
    inside = asyncio.Event()

    async def hold() -> None:
        async with ledger.reserved(costs(0.5)):
            inside.set()
            await asyncio.Event().wait()

    work = asyncio.create_task(hold())
    await inside.wait()
    work.cancel()
    await asyncio.wait({work})
    assert ledger.reserved_usd == 0.0


class Calls:
    """Calls that hold their reservation until the test tells them their cost."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.inside: list[str] = []
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.go: dict[str, asyncio.Future[float]] = {}

    def start(self, name: str, amount: float) -> asyncio.Task[None]:
        async def work() -> None:
            async with self.ledger.reserved(costs(amount)):
                self.go[name] = asyncio.get_running_loop().create_future()
                self.inside.append(name)
                self.entered.put_nowait(name)
                self.ledger.add(Usage(), await self.go[name])

        return asyncio.create_task(work(), name=name)


async def settle(times: int = 10) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_ledger_waits_for_money_reserved_by_others() -> None:
    calls = Calls(Ledger(1.0))
    tasks = [calls.start(name, 0.6) for name in "abc"]
    await settle()
    assert calls.inside == ["a"]
    calls.go["a"].set_result(0.1)
    await settle()
    assert calls.inside == ["a", "b"]
    calls.go["b"].set_result(0.5)
    await settle()
    with pytest.raises(BudgetExceededError):
        tasks[2].result()
    assert calls.ledger.cost_usd == pytest.approx(0.6)


async def test_call_with_unbounded_cost_runs_alone() -> None:
    ledger = Ledger(1.0)
    most = {"a": math.inf, "b": math.inf, "c": math.inf}
    inside: list[str] = []
    go = {name: asyncio.Event() for name in most}

    async def work(name: str) -> None:
        async with ledger.reserved(lambda: Estimate(0.0, most[name])):
            inside.append(name)
            await go[name].wait()
            ledger.add(Usage(), 0.4)
            most.update(b=0.3, c=0.3)  # what was learned holds for those that wait, too

    tasks = [asyncio.create_task(work(name)) for name in most]
    await settle()
    assert (inside, ledger.reserved_usd) == (["a"], 1.0)
    go["a"].set()
    await settle()
    assert (inside, ledger.reserved_usd) == (["a", "b", "c"], 0.6)
    go["b"].set()
    go["c"].set()
    await asyncio.gather(*tasks)
    assert (ledger.reserved_usd, ledger.cost_usd) == (0.0, pytest.approx(1.2))


async def test_raised_limit_wakes_waiting_calls() -> None:
    calls = Calls(Ledger(1.0))
    a, b = calls.start("a", 0.9), calls.start("b", 0.9)
    assert await calls.entered.get() == "a"
    await settle()
    assert calls.inside == ["a"]
    thread = threading.Thread(target=calls.ledger.reset, args=(5.0,))
    thread.start()
    assert await calls.entered.get() == "b"
    thread.join()
    for future in calls.go.values():
        future.set_result(0.0)
    await asyncio.gather(a, b)


def test_budget_needs_a_known_price() -> None:
    ledger = Ledger(1.0)
    ledger.check()
    ledger.add(Usage(), None)
    with pytest.raises(BudgetExceededError, match="without a known price") as refused:
        ledger.check()
    assert "--set agent.allow_unpriced=true" in refused.value.hint
    free = Ledger(1.0, allow_unpriced=True)
    free.add(Usage(), None)
    free.check()
    Ledger().check()


# -- pricing.json ---------------------------------------------------------------------------


def prices(tmp_path: Path, content: Any) -> FindPrice:
    path = tmp_path / "pricing.json"
    path.write_text(json.dumps(content))
    return load_pricing((path,))


def test_long_price_form_equals_the_short_form(tmp_path: Path) -> None:
    entry = {"input_per_million": 2.5, "cached_input_per_million": 1, "output_per_million": 10.0}
    written = {"_comment": "USD per 1M tokens", "models": {"gpt-*": {**entry, "_note": "x"}}}
    found = prices(tmp_path, written)("gpt-5.5")
    assert found == Price(input=2.5, output=10.0, cached_input=1.0)


def test_price_is_found_without_the_provider_prefix(tmp_path: Path) -> None:
    entry = {"input": 1, "output": 2}
    found = prices(tmp_path, {"llama-*": entry, "groq/llama-4": {"input": 9, "output": 9}})
    assert found("openrouter/meta/llama-3") == Price(input=1.0, output=2.0, cached_input=1.0)
    price = found("groq/llama-4")
    assert price is not None
    assert price.input == 9


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ("\xff", "cannot be read"),
        ("[]", "must be an object"),
        ('{"models": [1]}', "must be an object of models"),
        ('{"m": 3}', "m: 3 is not an object"),
        ('{"models": {"m": 1}}', "m: 1 is not an object"),
        ('{"m": {"input": 1}}', "m: 'output' is missing"),
        ('{"m": {"inputs": 1, "output": 1}}', "unknown key 'inputs'; did you mean 'input'?"),
        ('{"m": {"input": "1", "output": 1}}', "m: '1' is not a price"),
        ('{"m": {"input": -1, "output": 1}}', "m: -1 is not a price"),
        ('{"m": {"input": true, "output": 1}}', "m: True is not a price"),
        ('{"m": {"input": NaN, "output": 1}}', "m: nan is not a price"),
        ('{"m": {"input": Infinity, "output": 1}}', "m: inf is not a price"),
        (f'{{"m": {{"input": 1{"0" * 400}, "output": 1}}}}', "000 is not a price"),
    ],
)
def test_invalid_price_error_names_its_file(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "pricing.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigurationError) as caught:
        load_pricing((path,))
    assert words in caught.value.message
    assert str(path) in caught.value.message


def test_cached_tokens_have_their_own_price() -> None:
    price = Price(input=2.0, output=10.0, cached_input=1.0)
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    assert price.cost(usage) == pytest.approx(1.2 + 0.4 + 1.0)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-4o", 4),
        ("gpt-4o-mini", 3),
        ("gpt-5", 2),
        ("claude", 1),
        ("gpt-4o-mini-2", 3),
        ("GPT-5", 1),
    ],
)
def test_most_specific_price_pattern_wins(model: str, expected: int) -> None:
    names = {"*": 1, "gpt-*": 2, "gpt-4o-*": 3, "gpt-4o": 4}
    pricing = Prices(
        {name: Price(input=value, output=0, cached_input=0) for name, value in names.items()}
    )
    found = pricing.find(model)
    assert found is not None
    assert found.input == expected


@pytest.mark.parametrize("key", ["openai:gpt-5", "openai/gpt-5", "gpt-5", "openai:gpt-*"])
@pytest.mark.parametrize("model", ["gpt-5", "openai:gpt-5", "openai/gpt-5"])
def test_price_is_found_for_every_spelling_of_a_model(key: str, model: str) -> None:
    price = Price(input=1, output=2, cached_input=1)
    other = Price(input=9, output=9, cached_input=9)
    assert Prices({"*": other, key: price}, SUPPORTED_PROVIDERS).find(model) == price
    assert Prices({key: price}, SUPPORTED_PROVIDERS).find("claude-sonnet-4-5") is None


def test_first_existing_price_file_is_used(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(json.dumps({"m": {"input": 2, "output": 3}}))
    pricing = load_pricing((tmp_path / "a.json", tmp_path / "b.json"))
    assert pricing("m") == Price(input=2.0, output=3.0, cached_input=2.0)
    assert load_pricing((tmp_path / "a.json",))("m") is None


# -- figures --------------------------------------------------------------------------------


def test_ledger_adds_child_cost_to_the_parent() -> None:
    ledger = Ledger(1.0)
    child = Ledger(0.5, outer_ledger=ledger)
    ledger.begin("one")
    child.begin("child", parent="one")
    child.begin("grandchild", parent="child")
    ledger.add(Usage(), 0.1, "one")
    child.add(Usage(), 0.2, "child")
    child.add(Usage(), 0.1, "grandchild")
    ledger.add(Usage(), 0.05)  # outside of tasks: of the agent alone
    ledger.begin("two")
    ledger.add(Usage(), 0.25, "two")
    assert ledger.by_task == pytest.approx({"one": 0.4, "two": 0.25})
    assert ledger.cost_usd == pytest.approx(0.7)
    ledger.reset()
    assert ledger.by_task == {}


def test_price_file_of_an_editor_that_marks_utf_8_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pricing.json"
    path.write_text('{"m": {"input": 2, "output": 3}}', "utf-8-sig")
    assert load_pricing((path,))("m") == Price(input=2.0, output=3.0, cached_input=2.0)
