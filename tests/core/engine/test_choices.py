"""Sandboxes, prefilters, models, money."""

import json
from dataclasses import replace

import pytest

from delf.config import AgentConfig
from delf.engine.journal.log import TaskLog
from delf.engine.models.client import ModelClient
from delf.engine.models.money import Ledger
from delf.engine.models.pool import ModelPool, load_pricing
from delf.engine.redact import Redactor
from delf.engine.sandboxes import choose_sandbox, make_limits
from delf.errors import (
    BudgetExceededError,
    ConfigurationError,
    LLMExecutionError,
    PluginError,
    SandboxUnavailableError,
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
from delf.plugins.in_process_journal import InProcessJournal
from delf.plugins.isolation import Measured
from delf.project.prices import Prices
from delf.protocols.model import ModelContext
from delf.protocols.sandbox import Available, Limits, Unavailable
from delf.specs import ModelSpec, SandboxSpec
from delf.testing import ScriptedModel
from delf_devkit.testing.hosts import TestHost

MB = 1024 * 1024


class Whole:
    """What a choice does not look at."""

    isolation = "vm"

    async def open(self, spec): ...

    def visible_path(self, path): ...

    async def aclose(self): ...


class Backend(Whole):
    def __init__(self, state=None, name="", **options):
        self.state, self.options, self.closed = state or Available(), options, 0
        self.name = name

    async def available(self):
        return self.state

    async def aclose(self):
        self.closed += 1


class Strict(Whole):
    def __init__(self, *, colour="red"):
        self.colour = colour

    async def available(self):
        return Available()


@pytest.fixture
def host():
    return TestHost([])


def offer(host, name, isolation, state=None, factory=None, subset=False):
    backend = Backend(state, name)
    spec = SandboxSpec(name=name, summary=name, factory="x:y", isolation=isolation, subset=subset)
    host.provide(spec, factory or (lambda **options: backend))
    return backend


# -- sandboxes ------------------------------------------------------------------------------


async def test_auto_takes_the_strongest_that_works(host):
    offer(host, "weak", "process")
    offer(host, "strong", "container")
    broken = offer(host, "best", "vm", Unavailable("no KVM", "buy one"))
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.spec.name == "strong"
    assert chosen.warning is None
    assert broken.closed == 1


async def test_a_weak_choice_is_told_with_what_was_passed_over(host):
    offer(host, "weak", "process")
    offer(host, "strong", "container", Unavailable("no daemon"))
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.warning == (
        "scripts run in the sandbox 'weak', isolated by process only (strong: no daemon); "
        'sandbox = "weak" accepts it, and delf doctor shows what else there is'
    )
    assert chosen.passed_over


class Engine(Backend):
    """A backend that makes an image before its first session."""

    problem = "the image cannot be pulled:\n  no route to the registry"
    libraries: tuple[str, ...] | None = None

    async def prepare(self, libraries):
        self.libraries = libraries
        if self.problem:
            raise SandboxUnavailableError(self.problem, hint="docker pull it")


async def test_a_sandbox_that_cannot_be_made_ready_is_passed_over_before_a_task(host):
    offer(host, "weak", "process")
    engine = Engine()
    offer(host, "strong", "container", factory=lambda **options: engine)
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.spec.name == "weak"
    assert chosen.passed_over
    assert "(strong: the image cannot be pulled: no route to the registry)" in chosen.warning
    assert engine.closed == 1
    for asked in (AgentConfig(min_isolation="container"), AgentConfig(sandbox="strong")):
        with pytest.raises(SandboxUnavailableError, match="no route to the registry") as told:
            await choose_sandbox(host, asked, {})
        assert told.value.hint == "docker pull it"
    engine.problem = ""
    chosen = await choose_sandbox(host, AgentConfig(allowed_libs=("pandas",)), {})
    assert (chosen.spec.name, engine.libraries) == ("strong", ("pandas",))


async def test_isolation_is_never_lowered_silently(host):
    offer(host, "weak", "process")
    offer(host, "strong", "container", Unavailable("no daemon"))
    with pytest.raises(SandboxUnavailableError, match="no daemon; weak isolates by process only"):
        await choose_sandbox(host, AgentConfig(min_isolation="container"), {})
    with pytest.raises(SandboxUnavailableError, match="min_isolation is 'container'"):
        await choose_sandbox(host, AgentConfig(sandbox="weak", min_isolation="container"), {})
    with pytest.raises(SandboxUnavailableError, match="'strong' does not work here: no daemon"):
        await choose_sandbox(host, AgentConfig(sandbox="strong"), {})


async def test_auto_takes_all_of_python_and_says_what_it_passed_over(host):
    offer(host, "weak", "process")
    offer(host, "part", "interpreter", subset=True)
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.spec.name == "weak"
    assert "part isolates by interpreter, but runs a subset of Python" in chosen.warning


async def test_a_subset_is_taken_where_nothing_else_is_strong_enough(host, tried_out):
    """There is then nothing to fall back to: what it cannot run fails, and never runs weaker."""
    offer(host, "weak", "process")
    offer(host, "part", "interpreter", subset=True)
    tried_out["part"] = replace(CONFINED, calls=False)
    chosen = await choose_sandbox(host, AgentConfig(min_isolation="interpreter"), {})
    assert (chosen.spec.name, chosen.isolation) == ("part", "interpreter")
    offer(host, "whole", "container")
    tried_out["whole"] = CONFINED
    chosen = await choose_sandbox(host, AgentConfig(min_isolation="interpreter"), {})
    assert (chosen.spec.name, chosen.warning) == ("whole", None)


CONFINED = Measured(calls=True, files=True, network=True, processes=True, starts=True, kernel=False)


@pytest.fixture
def tried_out(monkeypatch):
    """What is found in backends when they are tried out, by their names."""
    found = {}

    async def measure(backend, *, thorough=False):
        return found[backend.name]

    monkeypatch.setattr("delf.plugins.sandboxes.measure", measure)
    return found


async def test_a_backends_word_is_not_enough(host, tried_out):
    offer(host, "boast", "vm")
    tried_out["boast"] = replace(CONFINED, files=False, reached=("a file of the host",))
    for least in ("vm", "container", "interpreter"):
        for sandbox in ("auto", "boast"):
            with pytest.raises(SandboxUnavailableError, match="reached a file of the host"):
                await choose_sandbox(host, AgentConfig(sandbox=sandbox, min_isolation=least), {})


async def test_a_backend_that_cannot_be_tried_out_counts_as_a_process(host):
    offer(host, "odd", "vm")
    with pytest.raises(SandboxUnavailableError, match="cannot be tried out"):
        await choose_sandbox(host, AgentConfig(min_isolation="container"), {})
    chosen = await choose_sandbox(host, AgentConfig(), {})
    assert chosen.isolation == "process"


@pytest.mark.parametrize(
    ("claimed", "measured", "believed"),
    [
        ("process", CONFINED, "process"),
        ("container", CONFINED, "container"),
        ("vm", CONFINED, "container"),
        ("vm", replace(CONFINED, kernel=True), "vm"),
        ("container", replace(CONFINED, kernel=True), "container"),
        ("interpreter", CONFINED, "process"),
        ("interpreter", replace(CONFINED, calls=False), "interpreter"),
        ("container", replace(CONFINED, calls=False), "interpreter"),
        ("vm", replace(CONFINED, files=False), "process"),
        ("container", replace(CONFINED, network=False), "process"),
        ("interpreter", replace(CONFINED, calls=False, processes=False), "process"),
    ],
)
def test_what_was_measured_caps_what_is_believed(claimed, measured, believed):
    assert measured.believed(claimed) == believed


async def test_no_sandbox_at_all(host):
    with pytest.raises(SandboxUnavailableError, match="no sandbox is installed"):
        await choose_sandbox(host, AgentConfig(), {})
    with pytest.raises(PluginError):
        await choose_sandbox(host, AgentConfig(sandbox="docker"), {})


async def test_options_reach_the_backend_and_limits_do_not(host):
    offer(host, "s", "process", factory=Strict)
    config = AgentConfig(sandbox="s", sandbox_config={"memory_limit": "1g", "colour": "blue"})
    assert (await choose_sandbox(host, config, {})).backend.colour == "blue"
    with pytest.raises(ConfigurationError, match="size"):
        await choose_sandbox(host, AgentConfig(sandbox="s", sandbox_config={"size": 1}), {})


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ({"memory_limit": "512m"}, "memory_bytes", 512 * MB),
        ({"memory_limit": "1.5G"}, "memory_bytes", 1536 * MB),
        ({"memory_limit": "2 GiB"}, "memory_bytes", 2048 * MB),
        ({"memory_limit": 1000}, "memory_bytes", 1000),
        ({"memory_mb": 64}, "memory_bytes", 64 * MB),
        ({"memory_bytes": "1k"}, "memory_bytes", 1024),
        ({"timeout": 2.5}, "cpu_seconds", 2.5),
        ({"open_files": 9.0}, "open_files", 9),
        ({"cpu_limit": "50%"}, "cpu_seconds", 60.0),
        ({"image": "python"}, "processes", 0),
    ],
)
def test_limits(config, field, value):
    assert getattr(make_limits(config), field) == value


@pytest.mark.parametrize(
    "config",
    [
        {"memory_limit": "lots"},
        {"memory_limit": "-1m"},
        {"memory_limit": "infm"},
        {"memory_limit": "nan"},
        {"memory_limit": ""},
        {"memory_limit": None},
        {"memory_limit": True},
        {"cpu_seconds": "60"},
        {"cpu_seconds": float("inf")},
        {"cpu_seconds": float("nan")},
        {"cpu_seconds": -1},
        {"output_bytes": [1]},
    ],
)
def test_limits_that_are_none_are_refused(config):
    with pytest.raises(ConfigurationError, match=next(iter(config))):
        make_limits(config)


def test_no_limits_are_the_defaults():
    assert make_limits({}) == Limits()


# -- models ---------------------------------------------------------------------------------


class Model:
    def __init__(self, config, context):
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
    return ModelPool(host, ModelContext())


def asker(pool, ledger=None, **options):
    log = TaskLog("t", InProcessJournal(), [])
    pool.pricing = options.pop("pricing", Prices({}).find)
    return ModelClient(
        pool=pool,
        ledger=ledger or Ledger(),
        log=log,
        **options,
    )


M = LLMConfig(model="m")
REQUEST = ModelRequest(messages=(system("rules"), user("task")))


async def test_a_model_is_opened_once_for_each_configuration(pool):
    other = LLMConfig(model="m", api_key="k")
    assert pool.get(M) is pool.get(LLMConfig(model="m"))
    assert pool.get(other) is not pool.get(M)
    models = [pool.get(M), pool.get(other)]
    await pool.aclose()
    assert [model.closed for model in models] == [1, 1]


async def test_a_call_is_counted_and_recorded(pool):
    ledger = Ledger()
    it = asker(pool, ledger)
    reply = await it.ask(M, REQUEST)
    assert (reply.text, reply.cost_usd) == ("hi", 0.25)
    assert (ledger.cost_usd, ledger.usage.total_tokens) == (0.25, 15)
    assert [type(e).__name__ for e in it.log.events] == ["ModelCalled", "ModelReplied"]


async def test_a_failed_call_is_recorded_and_raised(pool):
    it = asker(pool)
    pool.get(M).error = LLMExecutionError("no")
    with pytest.raises(LLMExecutionError):
        await it.ask(M, REQUEST)
    assert [type(e).__name__ for e in it.log.events] == ["ModelCalled", "ModelFailed"]


async def test_the_system_prompt_follows_the_rules_and_leads_without_them(pool):
    it = asker(pool, system_prompt="be kind")
    await it.ask(M, REQUEST)
    await it.ask(M, ModelRequest(messages=(user("question"),)))
    roles = [[m.role for m in request.messages] for request in pool.get(M).asked]
    assert roles == [["system", "system", "user"], ["system", "user"]]
    assert pool.get(M).asked[0].messages[0] == REQUEST.messages[0]


async def test_a_stream_is_seen_in_pieces_and_ends_as_a_whole(pool):
    pieces = []
    reply = await asker(pool, stream=True, on_delta=pieces.append).ask(M, REQUEST)
    assert (pieces, reply.text) == (["h", "i"], "hi")


async def test_calls_of_a_reply_are_recorded_without_secrets_and_no_part_of_the_text(host):
    redactor = Redactor(["hunter2hunter2"])
    call = ToolCall(id="1", name="run", arguments='{"code": "hunter2hunter2"}')
    model = ScriptedModel().says(ModelReply(text="so", model="m", calls=(call,)))
    host.provide(ModelSpec(name="m", summary="s", factory="x:y", serves=("*",)), model.factory)
    pool = ModelPool(host, ModelContext())
    pieces = []
    it = asker(pool, stream=True, on_delta=pieces.append, redactor=redactor)
    brought = results([ToolResult(id="0", name="run", text="it is hunter2hunter2")])
    reply = await it.ask(M, ModelRequest(messages=(user("q"), assistant("", [call]), brought)))
    assert "hunter2" not in repr(model.requests)
    assert "hunter2" not in repr(reply)
    assert "".join(pieces) == "so"
    [_, replied] = it.log.events
    assert replied.calls == reply.calls


async def test_nothing_is_asked_over_the_budget(pool):
    ledger = Ledger(0.5)
    it = asker(pool, ledger)
    await it.ask(M, REQUEST)
    await it.ask(M, REQUEST)
    with pytest.raises(BudgetExceededError, match=r"\$0.5 is used up \(\$0.500000 spent\)"):
        await it.ask(M, REQUEST)
    assert len(pool.get(M).asked) == 2
    ledger.reset(1)
    await it.ask(M, REQUEST)


# -- money ----------------------------------------------------------------------------------


def test_a_budget_needs_prices():
    ledger = Ledger(1.0)
    ledger.check()
    ledger.add(Usage(), None)
    with pytest.raises(BudgetExceededError, match="without a known price"):
        ledger.check()
    free = Ledger(1.0, allow_unpriced=True)
    free.add(Usage(), None)
    free.check()
    Ledger().check()


def test_a_price_counts_cached_tokens_apart():
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
def test_the_most_specific_pattern_wins(model, expected):
    names = {"*": 1, "gpt-*": 2, "gpt-4o-*": 3, "gpt-4o": 4}
    pricing = Prices(
        {name: Price(input=value, output=0, cached_input=0) for name, value in names.items()}
    )
    assert pricing.find(model).input == expected


@pytest.mark.parametrize(("priced", "cost"), [("m", 10e-6), ("n", 0.25)])
async def test_the_users_price_wins_over_the_providers(pool, priced, cost):
    prices = Prices({priced: Price(input=0, output=2, cached_input=0)})
    reply = await asker(pool, pricing=prices.find).ask(M, REQUEST)
    assert reply.cost_usd == pytest.approx(cost)


@pytest.mark.parametrize(("fees", "cost"), [(0.02, 0.02 + 10e-6), (None, None)])
async def test_what_is_no_token_is_paid_beside_the_users_price(pool, fees, cost):
    pool.get(M).fees = fees
    prices = Prices({"m": Price(input=0, output=2, cached_input=0)})
    reply = await asker(pool, pricing=prices.find).ask(M, REQUEST)
    assert reply.cost_usd == pytest.approx(cost)


@pytest.mark.parametrize("key", ["openai:gpt-5", "openai/gpt-5", "gpt-5", "openai:gpt-*"])
@pytest.mark.parametrize("model", ["gpt-5", "openai:gpt-5", "openai/gpt-5"])
def test_every_spelling_of_a_model_finds_its_price(key, model):
    price = Price(input=1, output=2, cached_input=1)
    assert Prices({"*": Price(input=9, output=9, cached_input=9), key: price}).find(model) == price
    assert Prices({key: price}).find("claude-sonnet-4-5") is None


def test_prices_come_from_the_first_file_that_is_there(tmp_path):
    (tmp_path / "b.json").write_text(json.dumps({"m": {"input": 2, "output": 3}}))
    pricing = load_pricing((tmp_path / "a.json", tmp_path / "b.json"))
    assert pricing("m") == Price(input=2.0, output=3.0, cached_input=2.0)
    assert load_pricing((tmp_path / "a.json",))("m") is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "must be an object"),
        ('{"m": 3}', "m: 3 is not an object"),
        ('{"m": []}', "is not an object"),
        ('{"m": {"input": 1}}', "m: 'output' is missing"),
        ('{"m": {"input": 1, "output": 1, "cache": 2}}', "m: unknown key 'cache'"),
        ('{"m": {"input": "1", "output": 1}}', "m: '1' is not a price"),
        ('{"m": {"input": -1, "output": 1}}', "m: -1 is not a price"),
        ('{"m": {"input": true, "output": 1}}', "m: True is not a price"),
        ('{"m": {"input": NaN, "output": 1}}', "m: nan is not a price"),
        ("\xff", "cannot be read"),
    ],
)
def test_a_bad_file_is_named_with_its_entry(tmp_path, content, said):
    path = tmp_path / "pricing.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=said) as caught:
        load_pricing((path,))
    assert str(path) in str(caught.value)
