"""Allowed decides what can be called, shown what the model sees; prefilters choose the latter."""

from __future__ import annotations

import asyncio

import pytest

from delf import tool
from delf.errors import PluginError, PrefilterError
from delf.protocols.approval import Rejected
from delf.protocols.prefilter import Selection
from delf.specs import PrefilterSpec
from delf.testing import TestHost


class Keeps:
    """Keeps what it is told to."""

    def __init__(self, *names, error=None):
        self.names = names
        self.error = error
        self.tasks = []

    async def select(self, task, catalog, ask):
        self.tasks.append(task)
        if self.error is not None:
            raise self.error
        return Selection(names=frozenset(self.names))


@pytest.fixture
def delf_host():
    """No prefilter but those of a test, whatever is installed."""
    records = TestHost.discover(environ={}).records()
    return TestHost.discover([r.name for r in records if "prefilter" in r.kinds], environ={})


def add(host, factory, *modes, name="made-up"):
    spec = PrefilterSpec(name=name, summary="Made up.", factory="a:b", modes=modes)
    host.provide(spec, factory)


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


def test_what_is_not_shown_can_be_called(make_agent, delf_host, scripted_model):
    _, factory = keeping("read_mail")
    add(delf_host, factory, "filter")
    scripted_model.writes("print(await pay(20))")
    agent = make_agent(pay, read_mail, prefilter_mode="filter", approval_mode="approve_all")
    response = agent.run("Go.")
    assert response.text == "paid 20"
    assert "def read_mail" in scripted_model.prompts[0]
    assert "def pay" not in scripted_model.prompts[0]
    assert response.trace.tools_shown == ["read_mail"]
    assert response.trace.tools_chosen_by == "made-up"


def test_what_is_not_shown_is_asked_about_as_anything_else(
    make_agent, delf_host, scripted_model, scripted_approvals
):
    _, factory = keeping("read_mail")
    add(delf_host, factory, "filter")
    scripted_approvals.says(Rejected(reason="no"))
    scripted_model.writes("print(await pay(20))")
    options = {"prefilter_mode": "filter", "approvals": ["scripted"], "retry_count": 0}
    response = make_agent(pay, read_mail, **options).run("Go.")
    assert statuses(response) == ["rejected"]


def test_a_script_finds_what_is_not_shown(make_agent, delf_host, scripted_model):
    _, factory = keeping("read_mail")
    add(delf_host, factory, "filter")
    scripted_model.writes("print(await find_tools('pay an invoice'))")
    agent = make_agent(pay, read_mail, *tools(3), prefilter_mode="filter")
    response = agent.run("Go.")
    assert response.text == ('async def pay(amount: float) -> str:  """Pay an invoice. [asks]"""')
    assert "def find_tools(words: str) -> str:" in scripted_model.prompts[0]
    assert "4 more tools" in scripted_model.prompts[0]


def test_where_all_is_shown_there_is_nothing_to_find(make_agent, delf_host, scripted_model):
    _, factory = keeping("read_mail", "pay")
    add(delf_host, factory, "filter")
    scripted_model.writes("print(1)")
    make_agent(pay, read_mail, prefilter_mode="filter").run("Go.")
    assert "find_tools" not in scripted_model.prompts[0]


# -- which prefilter ------------------------------------------------------------------------


def test_a_plugin_declares_its_own_modes(make_agent, delf_host, scripted_model):
    prefilter, factory = keeping("pay")
    add(delf_host, factory, "by-team")
    scripted_model.writes("print(1)")
    make_agent(pay, prefilter_mode="by-team").run("One.")
    assert prefilter.tasks == ["One."]


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("semantic", "no plugin serves prefilter_mode 'semantic'"),
        ("by-tea", r"no plugin serves prefilter_mode 'by-tea'; did you mean 'by-team'\?"),
        ("filter", "prefilter_mode 'filter' is given by"),
    ],
)
def test_a_mode_that_nobody_serves_raises_at_once(make_agent, delf_host, mode, says):
    add(delf_host, Keeps, "by-team", "filter", name="one")
    add(delf_host, Keeps, "filter", name="two")
    with pytest.raises(PluginError, match=says):
        make_agent(pay, prefilter_mode=mode).start()


@pytest.mark.parametrize(("count", "by"), [(9, "all"), (10, "made-up"), (60, "made-up")])
def test_auto_takes_what_there_is(make_agent, delf_host, scripted_model, count, by):
    _, factory = keeping("look_1")
    add(delf_host, factory, "semantic")
    scripted_model.writes("print(1)")
    response = make_agent(*tools(count)).run("Go.")
    assert response.trace.tools_chosen_by == by
    assert len(response.trace.tools_shown) == (count if by == "all" else 1)


@pytest.mark.parametrize(("count", "told"), [(49, []), (60, ["all 60 tools are shown"])])
def test_many_tools_without_a_prefilter_are_told(make_agent, scripted_model, count, told):
    scripted_model.writes("print(1)")
    response = make_agent(*tools(count)).run("Go.")
    assert [text.partition(" to the model")[0] for text in response.trace.warnings] == told


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
def test_a_failure_is_told_and_all_tools_are_shown(
    make_agent, delf_host, scripted_model, factory, says
):
    add(delf_host, factory, "filter")
    scripted_model.writes("print(await look_7())")
    response = make_agent(*tools(12), timeout=2).run("Go.")
    assert response.text == "7"
    (warning,) = response.trace.warnings
    assert says in warning
    assert warning.startswith("all tools are shown: the prefilter 'made-up' failed")
    assert response.trace.tools_chosen_by == "all"


@pytest.mark.parametrize(("factory", "says"), FAILURES)
def test_a_failure_of_one_that_was_asked_for_fails_the_task(
    make_agent, delf_host, scripted_model, factory, says
):
    add(delf_host, factory, "filter")
    response = make_agent(*tools(3), timeout=2, prefilter_mode="filter").run("Go.")
    assert isinstance(response.exception, PrefilterError)
    assert says in (response.error or "")
    assert not scripted_model.requests
