"""Duties of every prefilter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from delf.errors import LLMExecutionError, PrefilterError
from delf.protocols.prefilter import Catalog, CatalogEntry, Prefilter, Selection
from delf_devkit.testing.contracts.base import Contract, fail_without, needs

_MANY = 500
_MAX_QUESTIONS = 20
_MARK = "marmalade-7741"
_LONG_POLITE_BEGINNING = "Please. " * 40


class PrefilterContract(Contract):
    """Tests for a prefilter; needs a fixture ``prefilter``.

    The selection from ``catalog`` must contain ``wanted`` for the task ``task``, and
    ``other_wanted`` for the task ``other_task``. Override :meth:`answer` to script the light model,
    or set ``asks = False`` if the prefilter never asks the light model.
    """

    asks: ClassVar[bool] = True
    task: ClassVar[str] = "Send an email to Ann about the open invoices."
    wanted: ClassVar[Sequence[str]] = ("mail.send",)
    other_task: ClassVar[str] = "Feed the animal in cage 7."
    other_wanted: ClassVar[Sequence[str]] = ("zoo.feed",)
    catalog: ClassVar[Sequence[CatalogEntry]] = (
        CatalogEntry(name="mail.send", summary="Send an email."),
        CatalogEntry(name="mail.search", summary="Find emails."),
        CatalogEntry(name="bank.invoices", summary="Invoices by state."),
        CatalogEntry(name="zoo.feed", summary="Feed an animal."),
        CatalogEntry(name="zoo.weigh", summary="Weigh an animal."),
    )

    @pytest.fixture
    def prefilter(self) -> Prefilter:
        """The prefilter under test."""
        fail_without(self, "a fixture `prefilter`")

    def answer(self, question: str) -> str:
        """Return the light model's answer: a JSON list of the names in ``wanted``.

        If the question is about the task ``other_task``, the list has the names in
        ``other_wanted``. Override this method to return something else.
        """
        return json.dumps(list(self.wanted_of(question)))

    def wanted_of(self, question: str) -> Sequence[str]:
        """Return the tools that the prefilter should select for the task in a model request.

        Args:
            question: The text of the request, which contains the task.
        """
        if self.other_task in question:
            return self.other_wanted
        return self.wanted

    async def test_prefilter_keeps_the_actions_a_task_needs(self, prefilter: Any) -> None:
        tasks = {self.task: self.wanted, self.other_task: self.other_wanted}
        # The first task comes again: its selection must not depend on the task in between.
        for task in (*tasks, self.task):
            selection = await prefilter.select(task, Catalog(self.catalog), self._ask())
            assert isinstance(selection, Selection)
            assert len({*selection.names}) == len(selection.names), (
                f"a selection names an action twice: {[*selection.names]}"
            )
            missing = set(tasks[task]) - set(selection.names)
            assert not missing, f"a task is not shown {sorted(missing)}: see `other_wanted`"
        late = f"{_LONG_POLITE_BEGINNING} {self.other_task}"
        selection = await prefilter.select(late, Catalog(self.catalog), self._ask())
        assert {*self.other_wanted} <= {*selection.names}, (
            f"the words after {len(_LONG_POLITE_BEGINNING)} characters of a task are ignored: read "
            "the whole task"
        )

    async def test_prefilter_selects_only_from_the_catalog(self, prefilter: Any) -> None:
        for catalog in (self.catalog, self.catalog[3:], self.catalog[:1]):
            selection = await self._select(prefilter, self.task, catalog, self._ask())
            assert selection <= {entry.name for entry in catalog}
        empty = await prefilter.select(self.task, Catalog(), self._ask())
        assert not empty.names

    async def test_large_catalog_is_accepted(self, prefilter: Any) -> None:
        more = tuple(
            CatalogEntry(name=f"zoo.cage_{number}", summary=f"Look into cage {number}.")
            for number in range(_MANY)
        )
        catalog = Catalog((*more, *self.catalog))
        selection = await prefilter.select(self.task, catalog, self._ask())
        assert set(self.wanted) <= set(selection.names)
        assert len(selection.names) <= len(catalog) / 2, "it leaves next to nothing out"
        await self.check_loop_stays_free(lambda: prefilter.select(self.task, catalog, self._ask()))

    async def test_concurrent_tasks_are_independent(self, prefilter: Any) -> None:
        tasks = (self.task, "Feed an animal in the zoo.", "Find invoices by state.")
        catalog = Catalog(self.catalog)

        async def select(task: str) -> Sequence[str]:
            return (await prefilter.select(task, catalog, self._ask())).names

        alone = [await select(task) for task in tasks]
        together = await asyncio.gather(*(select(task) for task in tasks * 3))
        assert together == alone * 3, "selections are mixed up"

    async def test_nothing_is_kept_between_tasks(self, prefilter: Any) -> None:
        questions: list[str] = []

        async def ask(question: str) -> str:
            questions.append(question)
            return self.answer(question)

        await prefilter.select(f"{self.task} {_MARK}", Catalog(self.catalog), ask)
        count_before = len(questions)
        first_selection = await prefilter.select(self.task, Catalog(self.catalog), ask)
        second = await prefilter.select(self.task, Catalog(self.catalog), ask)
        assert first_selection == second, "the same task has another selection"
        for question in questions[count_before:]:
            assert _MARK not in question, "one task's words are in the question of another"

    async def test_unusual_tasks_are_accepted(self, prefilter: Any) -> None:
        for task in ("", "日本語 🦊", "word " * 5000):
            await self._select(prefilter, task, self.catalog, self._ask())

    async def test_use_leaves_the_process_unchanged(self, prefilter: Any) -> None:
        async def use() -> None:
            await prefilter.select(f"{self.task} {_MARK}", Catalog(self.catalog), self._ask())

        await self.check_nothing_remains(prefilter, use, forbidden_texts=(_MARK,))

    async def test_secrets_are_never_shown(self, prefilter: Any) -> None:
        catalog = Catalog(self.catalog)
        await self.check_no_secret_is_shown(
            prefilter, lambda: prefilter.select(self.task, catalog, self._ask())
        )

    @needs("asks")
    async def test_prefilter_asks_few_questions(self, prefilter: Any) -> None:
        questions: list[str] = []

        async def ask(question: str) -> str:
            questions.append(question)
            return self.answer(question)

        more = (
            CatalogEntry(name=f"zoo.cage_{number}", summary=f"Look into cage {number}.")
            for number in range(_MANY)
        )
        await prefilter.select(self.task, Catalog((*more, *self.catalog)), ask)
        assert len(questions) <= _MAX_QUESTIONS, (
            f"it asked the model {len(questions)} times for one task: each costs time and money; "
            "ask about many tools at once"
        )

    @needs("asks")
    async def test_failing_model_is_a_prefilter_error(self, prefilter: Any) -> None:
        async def ask(_question: str) -> str:
            raise LLMExecutionError("the model is down")

        with pytest.raises(PrefilterError):
            await prefilter.select(self.task, Catalog(self.catalog), ask)

    @needs("asks")
    async def test_unusable_model_reply_selects_only_known_actions(self, prefilter: Any) -> None:
        for text in ("", "no idea", '["bank.steal", 7, null]', "{" * 1000):
            selection = await self._select(prefilter, self.task, self.catalog, _always(text))
            assert selection <= {entry.name for entry in self.catalog}

    async def _select(
        self, prefilter: Any, task: str, catalog: Sequence[CatalogEntry], ask: Any
    ) -> frozenset[str]:
        """Return the names that a prefilter selects; an empty set after ``PrefilterError``."""
        try:
            return frozenset((await prefilter.select(task, Catalog(catalog), ask)).names)
        except PrefilterError:
            return frozenset()

    def _ask(self) -> Callable[[str], Any]:
        """Return a scripted light model; a request fails the test if ``asks`` is False."""

        async def ask(question: str) -> str:
            assert self.asks, "it asked the model, and asks = False"
            return self.answer(question)

        return ask


def _always(text: str) -> Callable[[str], Any]:
    async def ask(_question: str) -> str:
        return text

    return ask
