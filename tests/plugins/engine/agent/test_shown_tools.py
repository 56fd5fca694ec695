"""Tests of allowed tools, which can be called, and shown tools, which a prefilter selects."""

from __future__ import annotations

import asyncio
import re

import pytest

from delf import Connection, tool
from delf.errors import PluginError, PrefilterError
from delf.protocols.approval import Rejected
from delf.protocols.prefilter import Selection
from delf.specs import PrefilterSpec
from delf.testing import TestHost
from delf.tools.action import action_from_function


class Keeps:
    """A prefilter that selects the names that the test gives it."""

    def __init__(self, *names, error=None):
        self.names = names
        self.error = error
        self.tasks = []

    async def select(self, task, catalog, ask):
        self.tasks.append(task)
        if self.error is not None:
            raise self.error
        return Selection(names=self.names)


@pytest.fixture
def delf_host():
    """Provide only the prefilters of a test, whatever is installed."""
    records = TestHost.discover(environ={}).records()
    return TestHost.discover([r.name for r in records if "prefilter" in r.kinds], environ={})


def add(host, factory, name, *, asks=True):
    host.provide(PrefilterSpec(name=name, summary="Made up.", factory="a:b", asks=asks), factory)


def keeping(*names, **options):
    made = Keeps(*names, **options)
    return made, lambda: made


def tools(count):
    def make(number):
        async def look() -> int:
            return number

        return tool(name=f"look_{number}", effect="read", confirm=False, description="Look.")(look)

    return [make(number) for number in range(count)]


@tool(effect="irreversible")
async def pay(amount: float) -> str:
    """Pay an invoice."""
    return f"paid {amount:g}"


@tool(effect="read", confirm=False)
async def read_mail() -> str:
    """Read the mail."""
    return "an invoice of 20"


def statuses(response):
    return [call.status for call in response.trace.tool_calls]


# -- shown and allowed ----------------------------------------------------------------------


def test_hidden_tool_can_be_called(make_agent, delf_host, scripted_model):
    _, factory = keeping("read_mail")
    add(delf_host, factory, "filter")
    scripted_model.writes("print(await pay(20))")
    agent = make_agent(pay, read_mail, prefilter_mode="filter", approval_mode="approve_all")
    response = agent.run("Go.")
    assert response.text == "paid 20"
    assert "def read_mail" in scripted_model.prompts[0]
    assert "def pay" not in scripted_model.prompts[0]
    assert response.trace.tools_shown == ["read_mail"]
    assert response.trace.tools_chosen_by == "filter"


def test_hidden_tool_needs_approval_like_any_other(
    make_agent, delf_host, scripted_model, scripted_approvals
):
    _, factory = keeping("read_mail")
    add(delf_host, factory, "filter")
    scripted_approvals.says(Rejected(reason="no"))
    scripted_model.writes("print(await pay(20))")
    options = {"prefilter_mode": "filter", "approvals": ["scripted"], "retry_count": 0}
    response = make_agent(pay, read_mail, **options).run("Go.")
    assert statuses(response) == ["rejected"]


def test_find_tools_returns_hidden_tools(make_agent, delf_host, scripted_model):
    _, factory = keeping("read_mail")
    add(delf_host, factory, "filter")
    scripted_model.writes("print(await find_tools('pay an invoice'))")
    agent = make_agent(pay, read_mail, *tools(3), prefilter_mode="filter")
    response = agent.run("Go.")
    assert response.text == ('async def pay(amount: float) -> str:  """Pay an invoice. [asks]"""')
    assert "def find_tools(words: str) -> str:" in scripted_model.prompts[0]
    assert "4 more tools" in scripted_model.prompts[0]


def test_find_tools_is_absent_if_nothing_is_hidden(make_agent, delf_host, scripted_model):
    _, factory = keeping("read_mail", "pay")
    add(delf_host, factory, "filter")
    scripted_model.writes("print(1)")
    make_agent(pay, read_mail, prefilter_mode="filter").run("Go.")
    assert "find_tools" not in scripted_model.prompts[0]


# -- which prefilter ------------------------------------------------------------------------


def test_requested_prefilter_selects_although_all_tools_fit(make_agent, delf_host, scripted_model):
    prefilter, factory = keeping("pay")
    add(delf_host, factory, "by-team")
    scripted_model.writes("print(1)")
    make_agent(pay, prefilter_mode="by-team").run("One.")
    assert prefilter.tasks == ["One."]


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("semantic", "no prefilter 'semantic': plugin 'prefilter-semantic' .* is disabled"),
        ("by-tea", r"unknown prefilter 'by-tea'; did you mean 'by-team'\?"),
    ],
)
def test_unusable_prefilter_mode_raises_at_start(make_agent, delf_host, mode, says):
    add(delf_host, Keeps, "by-team")
    with pytest.raises(PluginError, match=says):
        make_agent(pay, prefilter_mode=mode).start()


@pytest.mark.parametrize(("budget", "by"), [(21_000, "all"), (2_000, "free")])
def test_auto_mode_uses_a_free_prefilter_if_tools_exceed_the_budget(
    make_agent, delf_host, scripted_model, budget, by
):
    _, factory = keeping("look_41")
    add(delf_host, lambda: Keeps(error=PrefilterError("it asks a model")), "filter")
    add(delf_host, factory, "free", asks=False)
    scripted_model.writes("print(1)")
    response = make_agent(*tools(60), tools_budget=budget).run("Go.")
    assert response.trace.tools_chosen_by == by
    assert (len(response.trace.tools_shown) < 60) == (by == "free")
    assert "look_41" in response.trace.tools_shown


def test_failed_prefilter_is_not_named_as_the_chooser(make_agent, delf_host, scripted_model):
    add(delf_host, lambda: Keeps(error=PrefilterError("it is offline")), "free", asks=False)
    scripted_model.writes("print(1)")
    response = make_agent(*tools(60), tools_budget=2_000).run("Go.")
    assert response.trace.tools_chosen_by == "words"
    assert any("it is offline" in warning for warning in response.trace.warnings)


class Desk(Connection):
    """The support desk."""

    def __init__(self, nouns=40):
        super().__init__()
        self.nouns = nouns

    async def actions(self):
        async def act(number: int, state: str = "open") -> list[dict]:
            """Do what the name says with what there is at the desk, as it is kept there."""
            return []

        nouns = ["ticket", *(f"thing{n}" for n in range(self.nouns))]
        reads = [f"{verb}_{noun}" for noun in nouns for verb in ("list", "get")]
        writes = [f"{verb}_{noun}" for noun in nouns for verb in ("close", "assign")]
        return [
            action_from_function(act, name=name, effect=effect)
            for effect, names in (("write", writes), ("read", reads))
            for name in names
        ]


def shown_text(prompt):
    return prompt.partition("# More tools")


def test_word_ranking_is_used_without_a_prefilter(make_agent, delf_host, scripted_model):
    scripted_model.writes("print(1)")
    agent = make_agent(Desk(), prefilter_mode="auto", tools_budget=8_000)
    response = agent.run("Close it: the ticket 5")
    stubs, _, names = shown_text(scripted_model.prompts[0])
    assert response.trace.tools_chosen_by == "words"
    assert response.trace.warnings == []
    # Who closes a ticket has to find it first.
    for name in ("close_ticket", "list_ticket", "get_ticket"):
        assert f"async def {name}(" in stubs
    # The budget is used, and the names of all others follow.
    tools = scripted_model.prompts[0].partition("Tools:")[2]
    assert 6_500 < len(tools) < 8_600
    rest = {f"{verb}_thing{n}" for n in range(40) for verb in ("list", "get", "close", "assign")}
    listed = set(re.findall(r"\w+", names))
    assert all((f"def {name}(" in stubs) != (name in listed) for name in rest)


def test_tool_list_is_the_same_for_each_task_if_it_fits_the_budget(
    make_agent, delf_host, scripted_model
):
    scripted_model.writes("print(1)").writes("print(2)")
    agent = make_agent(Desk(10))
    first, second = "Close the ticket 5", "Which things are open?"
    agent.run(first)
    agent.run(second)
    one, two = scripted_model.prompts
    assert one.partition("Now:")[0] == two.partition("Now:")[0]
    assert "find_tools" not in one
    assert one.count("async def ") >= 44


def test_off_mode_shows_every_tool(make_agent, delf_host, scripted_model):
    scripted_model.writes("print(1)")
    make_agent(Desk(), prefilter_mode="off", tools_budget=2_000).run("Go.")
    assert scripted_model.prompts[0].count("async def") >= 164


# -- what goes wrong with it ----------------------------------------------------------------


async def hang():
    await asyncio.Event().wait()


class Hangs:
    async def select(self, task, catalog, ask):
        await hang()


class GivesNothing:
    async def select(self, task, catalog, ask):
        return None


FAILURES = [
    (keeping(error=PrefilterError("the index is gone"))[1], "the index is gone"),
    (keeping(error=KeyError("x"))[1], "KeyError: 'x'"),
    (Hangs, "it did not end within 0.5 s"),
    (GivesNothing, "NoneType in place of Selection"),
]


@pytest.mark.parametrize(("factory", "says"), FAILURES)
def test_failing_prefilter_falls_back_to_words_with_a_warning(
    make_agent, delf_host, scripted_model, factory, says
):
    add(delf_host, factory, "made-up", asks=False)
    scripted_model.writes("print(await look_7())")
    response = make_agent(*tools(60), tools_budget=2_000, timeout=2).run("Use look 7.")
    assert response.text == "7"
    (warning,) = response.trace.warnings
    assert says in warning
    assert "because the prefilter 'made-up' failed" in warning
    assert "look_7" in response.trace.tools_shown


@pytest.mark.parametrize(("factory", "says"), FAILURES)
def test_failing_requested_prefilter_fails_the_task(
    make_agent, delf_host, scripted_model, factory, says
):
    add(delf_host, factory, "filter")
    response = make_agent(*tools(3), timeout=2, prefilter_mode="filter").run("Go.")
    assert isinstance(response.exception, PrefilterError)
    assert says in (response.error or "")
    assert not scripted_model.requests
