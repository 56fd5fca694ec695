"""Prefilters that break one thing each."""

import asyncio
import json

import pytest
from planting import planting

from delf.errors import DelfError, PrefilterError
from delf.protocols.prefilter import Selection
from delf.testing import PrefilterContract
from delf.tools.catalogs import search


class Good:
    async def select(self, task, catalog, ask):
        if not catalog:
            return Selection(names=())
        try:
            text = json.loads(await ask(f"Which of these does {task!r} need? {catalog}"))
        except (DelfError, ValueError) as error:
            raise PrefilterError("the model did not choose") from error
        known = {entry.name for entry in catalog}
        return Selection(names=tuple(name for name in text if name in known))


class Suite(PrefilterContract):
    seconds = 0.5
    kind = Good

    @pytest.fixture
    def prefilter(self):
        return self.kind()


breaks = planting(Suite)


class TestGood(Suite):
    pass


@breaks("test_prefilter_keeps_the_actions_a_task_needs")
class TestGivesAList(Good):
    async def select(self, task, catalog, ask):
        return list((await super().select(task, catalog, ask)).names)


@breaks("test_prefilter_selects_only_from_the_catalog")
class TestInvents(Good):
    async def select(self, task, catalog, ask):
        selection = await super().select(task, catalog, ask)
        return Selection(names=(*selection.names, "mail.send"))


@breaks("test_unusable_model_reply_selects_only_known_actions")
class TestBelievesTheModel(Good):
    async def select(self, task, catalog, ask):
        try:
            text = json.loads(await ask("Which?"))
        except ValueError as error:
            raise PrefilterError("no JSON") from error
        return Selection(names=tuple(text))


@breaks("test_large_catalog_is_accepted")
class TestLooksAtTheFirstOnly(Good):
    async def select(self, task, catalog, ask):
        return await super().select(task, catalog[:100], ask)


@breaks("test_unusual_tasks_are_accepted")
class TestHangsOnAnEmptyTask(Good):
    async def select(self, task, catalog, ask):
        if not task:
            await asyncio.Event().wait()
        return await super().select(task, catalog, ask)


@breaks("test_failing_model_is_a_prefilter_error")
class TestLetsErrorsThrough(Good):
    async def select(self, task, catalog, ask):
        await ask("Which?")
        return await super().select(task, catalog, ask)


@breaks("test_concurrent_tasks_are_independent", asks=False)
class TestMixesUpTasks(Good):
    async def select(self, task, catalog, ask):
        self.task = task
        await asyncio.sleep(0)
        found = search(catalog, self.task, 2)
        return Selection(names=tuple(entry.name for entry in found))


@breaks("test_prefilter_keeps_the_actions_a_task_needs", says="a task is not shown")
class TestGivesItsFirstSelectionToAll(Good):
    first = None

    async def select(self, task, catalog, ask):
        if self.first is None:
            self.first = await super().select(task, catalog, ask)
        known = {entry.name for entry in catalog}
        return Selection(names=tuple(known.intersection(self.first.names)))


@breaks("test_nothing_is_kept_between_tasks", says="in the question of another")
class TestKeepsTasks(Good):
    tasks: list = []

    async def select(self, task, catalog, ask):
        self.tasks.append(task)
        return await super().select(" ".join(self.tasks), catalog, ask)


@breaks("test_use_leaves_the_process_unchanged", says="last keeps what one user's call was about")
class TestKeepsTasksInItsClass(Good):
    last: dict = {}

    async def select(self, task, catalog, ask):
        self.last[task] = len(catalog)
        return await super().select(task, catalog, ask)


@breaks("test_secrets_are_never_shown", secrets=("tok-secret",))
class TestShowsItsKey(Good):
    def __repr__(self):
        return "Prefilter('tok-secret')"


@breaks("test_prefilter_asks_few_questions", says="ask about many tools at once")
class TestAsksAboutEachTool(Good):
    async def select(self, task, catalog, ask):
        for entry in catalog:
            await ask(f"Does {task!r} need {entry.name}?")
        return await super().select(task, catalog, ask)


@breaks("test_prefilter_keeps_the_actions_a_task_needs", says="names an action twice")
class TestNamesTwice(Good):
    async def select(self, task, catalog, ask):
        found = await super().select(task, catalog, ask)
        return Selection(names=(*found.names, *found.names))


@breaks("test_prefilter_keeps_the_actions_a_task_needs", says="are ignored: read the whole task")
class TestReadsTheFirstWords(Good):
    async def select(self, task, catalog, ask):
        return await super().select(task[:100], catalog, ask)
