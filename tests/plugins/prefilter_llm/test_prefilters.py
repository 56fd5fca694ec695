"""Requests to the light model, and the use of its answers."""

import pytest

from delf.errors import PrefilterError
from delf.protocols.prefilter import Ask, Catalog, CatalogEntry
from delf.testing import PluginContract, PrefilterContract
from delf_prefilter_llm.filter import FilterPrefilter
from delf_prefilter_llm.search import SearchPrefilter

CATALOG = Catalog(
    [
        CatalogEntry(name="mail.send", summary="Send an email."),
        CatalogEntry(name="bank.invoices", summary="Invoices by state."),
        CatalogEntry(name="zoo.feed", summary="Feed an animal."),
        CatalogEntry(name="weigh", summary="Weigh an animal."),
    ]
)


class Script:
    """A light model that gives fixed answers in order."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def __call__(self, question: str) -> str:
        self.questions.append(question)
        return self.answers.pop(0)


class TestFilter(PrefilterContract):
    @pytest.fixture
    def prefilter(self) -> FilterPrefilter:
        return FilterPrefilter()


class TestSearch(PrefilterContract):
    def answer(self, question: str) -> str:
        (name,) = self.wanted_of(question)
        return f"DONE: {name.replace('.', ':')}"

    @pytest.fixture
    def prefilter(self) -> SearchPrefilter:
        return SearchPrefilter()


class TestPackage(PluginContract):
    name = "prefilter-llm"


async def select(prefilter: FilterPrefilter | SearchPrefilter, ask: Ask) -> set[str]:
    return set((await prefilter.select("Remind late payers.", CATALOG, ask)).names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mail:send\nbank:invoices", {"mail.send", "bank.invoices"}),
        ("1. `mail.send`\n2. `WEIGH` - to weigh", {"mail.send", "weigh"}),
        ("I need MAIL:SEND, and mail:burn.", {"mail.send"}),
        ("NONE", set[str]()),
        ("None.", set[str]()),
    ],
)
async def test_prefilter_asks_one_question(text: str, names: set[str]) -> None:
    ask = Script(text)
    assert await select(FilterPrefilter(), ask) == names
    (question,) = ask.questions
    assert "mail:send  Send an email." in question
    assert "Remind late payers." in question


async def test_answer_without_an_action_is_an_error() -> None:
    with pytest.raises(PrefilterError, match="named no existing action"):
        await select(FilterPrefilter(), Script("I cannot help with that."))


async def test_model_searches_until_it_is_done() -> None:
    ask = Script("SEARCH: invoices", "SEARCH: send email", "DONE: bank:invoices, mail:send")
    assert await select(SearchPrefilter(), ask) == {"bank.invoices", "mail.send"}
    assert "bank:invoices" not in ask.questions[0]
    assert "bank:invoices  Invoices by state." in ask.questions[1]
    assert "5 of 5 answers" in ask.questions[0]
    assert "3 of 5 answers" in ask.questions[2]


async def test_search_prefilter_selects_all_results_after_its_last_round() -> None:
    ask = Script(*["SEARCH: animal"] * 4, "SEARCH: invoices")
    assert await select(SearchPrefilter(), ask) == {"zoo.feed", "weigh", "bank.invoices"}


async def test_plain_reply_is_treated_as_a_search() -> None:
    ask = Script("I would look for something about invoices", "**DONE:** bank:invoices")
    assert await select(SearchPrefilter(), ask) == {"bank.invoices"}
    with pytest.raises(PrefilterError, match="no action in 2 rounds"):
        await select(SearchPrefilter(rounds=2), Script("qwertz", "DONE: nothing:here"))
