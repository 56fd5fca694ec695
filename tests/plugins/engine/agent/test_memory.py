"""Tests of memory: by name or as an object, opened once, and never blocking a task."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from delf.errors import MemoryRetrievalError, MemorySetupError, PluginError
from delf.events import TaskFinished
from delf.protocols.memory import Fact
from delf.specs import MemorySpec
from delf_engine.config import AgentConfig


class Store:
    """Facts in a list."""

    def __init__(self, facts=(), threshold=0.0):
        self.facts = [Fact(content=text, saved_at=datetime.now(UTC)) for text in facts]
        self.asked = []
        self.closed = 0

    async def save(self, facts):
        self.facts += [Fact(content=text, saved_at=datetime.now(UTC)) for text in facts]

    async def search(self, query, top_k=5, threshold=0.3):
        self.asked.append((query, top_k, threshold))
        return self.facts[:top_k]

    async def all(self):
        return tuple(self.facts)

    async def delete(self, facts):
        self.facts = [fact for fact in self.facts if fact.content not in facts]
        return 0

    async def clear(self):
        self.facts.clear()

    async def aclose(self):
        self.closed += 1


def add(host, factory, name="notes"):
    host.provide(MemorySpec(name=name, summary="Made up.", factory="a:b"), factory)


def warnings(response):
    return response.trace.warnings


def learned(response):
    return response.trace.learned


# -- whose facts ----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["person", "agent"])
async def test_memory_recalls_no_facts_of_another_person(
    make_agent, delf_host, scripted_model, scope
):
    stores = {}

    def factory(context):
        return stores.setdefault(context.namespace, Store())

    add(delf_host, factory)
    scripted_model.writes("print(1)", '["Ada has a cat."]', *["print(1)", "[]"] * 3)
    agent = make_agent(memory="notes", learn=True, memory_config={"scope": scope})
    async with agent:
        for number, user in enumerate(("ada:1", "bo:2", None, "ada:1")):
            over = asyncio.Event()

            def listen(event, over=over):
                if isinstance(event, TaskFinished):
                    over.set()

            name = f"task_{number}"
            await agent.asubmit("Do it.", task_id=name, user=user, listeners=[listen])
            await over.wait()
    message = ["Ada has a cat." in prompt for prompt in scripted_model.prompts[0::2]]
    if scope == "agent":
        assert message == [False, True, True, True]
        assert stores.keys() == {"default"}
    else:
        assert message == [False, False, False, True]
        assert stores.keys() == {"default", "default/ada:1", "default/bo:2"}


# -- which store ----------------------------------------------------------------------------


def test_memory_store_is_created_once_by_name(make_agent, delf_host, scripted_model):
    made = []

    def factory(context, size=1):
        made.append((context, size))
        return Store([f"Ann is {size}."])

    add(delf_host, factory)
    scripted_model.writes("print(1)", "print(2)")
    agent = make_agent(memory="notes", memory_config={"namespace": "work", "top_k": 3})
    assert agent.run("Who is Ann?").text == "1"
    assert agent.run("And now?").text == "2"
    assert "Known facts:\n- Ann is 1." in scripted_model.prompts[1]
    ((context, size),) = made
    assert (context.namespace, size) == ("work", 1)
    assert context.data_dir.is_absolute()


def test_unknown_memory_name_raises_at_once(make_agent):
    with pytest.raises(PluginError, match="unknown memory 'note'"):
        make_agent(memory="note").start()


def test_memory_object_replaces_the_name_in_the_settings(make_agent):
    store = Store()
    make_agent(config=AgentConfig(memory="note", llm="scripted"), memory=store).run("Go.")
    assert store.asked


# -- what goes wrong with it ----------------------------------------------------------------


class Broken(Store):
    def __init__(self, error):
        super().__init__()
        self.error = error

    async def search(self, query, top_k=5, threshold=0.3):
        raise self.error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryRetrievalError("the index is gone"), "the index is gone"),
        (MemorySetupError("no such folder"), "no such folder"),
        (KeyError("id"), "KeyError: 'id'"),
    ],
)
def test_failing_memory_search_is_a_warning(make_agent, scripted_model, error, says):
    scripted_model.writes("print('done')")
    response = make_agent(memory=Broken(error)).run("Go.")
    assert response.text == "done"
    (warning,) = warnings(response)
    assert warning.startswith("nothing was recalled: ")
    assert says in warning


def test_failing_memory_store_is_a_warning_and_retried(make_agent, delf_host, scripted_model):
    tries = []

    def factory():
        tries.append(1)
        if len(tries) < 3:
            raise MemorySetupError("the database is locked")
        return Store(["Ann is 7."])

    add(delf_host, factory)
    scripted_model.writes("print(1)", "print(2)")
    agent = make_agent(memory="notes")
    assert warnings(agent.run("Go.")) == ["nothing was recalled: the database is locked"]
    assert warnings(agent.run("Go.")) == []
    assert "Ann is 7." in scripted_model.prompts[1]


def test_hanging_memory_store_is_skipped_after_a_short_wait(make_agent, scripted_model):
    class Hangs(Store):
        async def search(self, query, top_k=5, threshold=0.3):
            self.asked.append(query)
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if len(self.asked) > 5:
                        raise

    store = Hangs()
    scripted_model.writes("print('done')", "print('again')")
    agent = make_agent(memory=store, timeout=2)
    response = agent.run("Go.")
    assert response.text == "done"
    assert warnings(response) == [
        "nothing was recalled: the memory store 'Hangs' did not answer within 0.5 s"
    ]
    response = agent.run("Go.")
    assert response.text == "again"
    assert warnings(response) == [
        "nothing was recalled: the memory store 'Hangs' did not answer a moment ago"
    ]
    assert len(store.asked) == 1
    store.asked *= 10


def test_secret_in_a_fact_is_not_sent_to_the_model(make_agent, scripted_model):
    scripted_model.writes("print(1)")
    agent = make_agent(
        memory=Store(["The key is sk-very-secret-1."]), providers={"x": "sk-very-secret-1"}
    )
    agent.run("Go.")
    assert "The key is" in scripted_model.prompts[0]
    assert "sk-very-secret-1" not in scripted_model.prompts[0]


# -- learning -------------------------------------------------------------------------------


def test_memory_learns_nothing_by_default(make_agent, scripted_model):
    store = Store()
    scripted_model.writes("print(1)")
    response = make_agent(memory=store).run("Go.")
    assert (store.facts, learned(response), len(scripted_model.requests)) == ([], [], 1)


def test_facts_are_learned_after_a_task(make_agent, scripted_model):
    own = "(the user's own words)"
    store = Store([f"Ann likes tea. {own}"])
    store.guidelines = "Only what Ann likes."
    scripted_model.writes("print('Ok, window seats.')")
    scripted_model.says('Here: ["Ann likes window seats.", "Ann likes tea.", 7]')
    response = make_agent(memory=store, learn=True).run("I always want window seats.")
    assert response.text == "Ok, window seats."
    seats = f"Ann likes window seats. {own}"
    assert [fact.content for fact in store.facts] == [f"Ann likes tea. {own}", seats]
    assert learned(response) == [seats]
    question = scripted_model.prompts[-1]
    assert "Only what Ann likes." in question
    assert "- Ann likes tea." in question
    assert "I always want window seats." in question
    assert [call.purpose for call in response.trace.model_calls] == ["generate", "learn"]


@pytest.mark.parametrize("reply", ["None.", "[", "] [", '[1, {"a": []}]', "[" * 100_000 + "]" * 9])
def test_nothing_is_learned_from_an_unreadable_reply(make_agent, scripted_model, reply):
    scripted_model.writes("print(1)").says(reply)
    response = make_agent(memory=Store(), learn=True).run("Go.")
    assert (learned(response), warnings(response)) == ([], [])


def test_failing_to_learn_is_a_warning(make_agent, scripted_model):
    class Full(Store):
        async def save(self, facts):
            raise MemorySetupError("the disk is full")

    scripted_model.writes("print(1)").says('["Ann is 7."]')
    response = make_agent(memory=Full(), learn=True).run("Go.")
    assert response.text == "1"
    assert warnings(response) == ["nothing was learned: the disk is full"]
    scripted_model.writes("print(2)")
    response = make_agent(memory=Full(), learn=True).run("Go.")
    assert response.text == "2"
    assert "the scripted model has no reply" in warnings(response)[0]


def test_fact_that_the_model_repeats_is_learned_once(make_agent, scripted_model):
    store = Store([])
    scripted_model.writes("print(1)")
    scripted_model.says('["Ann is 7.", "Ann is 7.", "Ann is 7. (the user\'s own words)"]')
    response = make_agent(memory=store, learn=True).run("Go.")
    assert learned(response) == ["Ann is 7. (the user's own words)"]
    assert [fact.content for fact in store.facts] == learned(response)


def test_failed_task_learns_nothing(make_agent, scripted_model):
    store = Store()
    scripted_model.writes("1/0").says('["Ann is 7."]')
    response = make_agent(memory=store, learn=True, retry_count=0).run("Go.")
    assert (response.status, store.facts) == (False, [])


# -- from a project -------------------------------------------------------------------------


def test_project_setting_names_the_memory(delf_project):
    source = """
        import json
        from datetime import UTC, datetime
        from pathlib import Path

        from delf.hookspecs import hookimpl
        from delf.protocols.memory import Fact
        from delf.specs import MemorySpec

        class Store:
            def __init__(self, context, path):
                self.path = Path(path)
                self.namespace = context.namespace

            async def search(self, query, top_k=5, threshold=0.3):
                now = datetime.now(UTC)
                lines = self.path.read_text().splitlines()
                return [Fact(content=f"{self.namespace}: {x}", saved_at=now) for x in lines]

            async def save(self, facts): ...

            async def all(self): ...

            async def delete(self, facts): ...

            async def clear(self): ...

            async def aclose(self): ...

        @hookimpl
        def delf_memory_stores():
            yield MemorySpec(name="notes", summary="Notes.", factory=f"{__name__}:Store")
    """
    modules = {"delf_memory_notes/__init__.py": "", "delf_memory_notes/plugin.py": source}
    delf_project.install_plugin("memory-notes", modules)
    delf_project.write("notes.txt", "Ann is 7.\n")
    delf_project.write_config(
        '[plugins.memory-notes]\npath = "notes.txt"\n[agent]\nmemory_config = { namespace = "w" }'
    )
    llm = delf_project.install_model("print('done')")
    outcome = delf_project.run("run", "How old is Ann?", "--llm", llm, "--memory", "notes")
    assert outcome.succeeded().stdout == "done\n"
    assert any("Known facts:\n- w: Ann is 7." in prompt for prompt in delf_project.prompts)
    assert "memory" not in outcome.stderr
