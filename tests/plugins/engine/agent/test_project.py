"""Tests of agents made from a project, their parameters, and their responses."""

from __future__ import annotations

from pathlib import Path

import pytest

from delf import Agent, ConfigurationError, Response
from delf.protocols.journal import TaskRecord, fields_of_setup
from delf_engine.config import AgentConfig
from delf_engine.options import AgentOptions
from delf_engine.task_options import RUN

TOML = """
[agent]
llm = "scripted"
retry_count = 4
journal = "none"
chat = {keep = 3}

[connections.shelf]
type = "shelf"
"""
SHELF = """
from collections.abc import Iterable

from delf import Connection, action
from delf.hookspecs import hookimpl
from delf.specs import ConnectionSpec


class Shelf(Connection):
    def __init__(self, name="shelf", allow=None, confirm=None, size=1):
        super().__init__(name=name, allow=allow, confirm=confirm)
        self.size = size

    @action(effect="read")
    async def count(self) -> int:
        "How many books fit."
        return self.size


@hookimpl
def delf_connections() -> Iterable[ConnectionSpec]:
    yield ConnectionSpec(name="shelf", summary="A shelf.", factory="shelves:Shelf")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "delf.toml").write_text(TOML)
    (tmp_path / ".env").write_text("DELF_SHELF_SIZE=9\nDELF_RERUN_COUNT=7\n")
    (tmp_path / "below").mkdir()
    return tmp_path


@pytest.fixture
def host(delf_host, scripted_model, tmp_path, monkeypatch):
    (tmp_path / "shelves.py").write_text(SHELF)
    monkeypatch.syspath_prepend(str(tmp_path))
    import shelves

    delf_host.provide(next(iter(shelves.delf_connections())), shelves.Shelf)
    return delf_host


class TestFromProject:
    def test_agent_from_project_uses_command_line_settings(self, folder, host, scripted_model):
        scripted_model.writes("print(await shelf.count())")
        with Agent.from_project(folder / "below", host=host) as agent:
            assert agent.retry_count == 4
            assert agent.rerun_count == 7
            assert [item.name for item in agent.tools] == ["shelf"]
            assert agent.chat is not None
            assert agent.chat.keep == 3
            assert agent.run("How many?").text == "1"

    async def test_record_has_the_folder_of_the_project_and_the_options_of_the_task(
        self, folder, host, scripted_model
    ):
        scripted_model.writes("print(1)")
        options = {name: f"the {name}" for name in fields_of_setup() if name in RUN}
        events = []
        async with Agent.from_project(folder / "below", host=host) as agent:
            await agent.arun("How many?", listeners=[events.append], **options)
        record = TaskRecord.beginning(events[0])
        assert record == {**record, "folder": str(folder), **options}

    def test_project_file_path_is_accepted(self, folder, host):
        assert Agent.from_project(folder / "delf.toml", host=host).retry_count == 4

    def test_explicit_option_overrides_the_project(self, folder, host):
        agent = Agent.from_project(folder, host=host, retry_count=0, chat=False, connections=())
        assert agent.retry_count == 0
        assert agent.chat is None
        assert not agent.tools

    def test_project_without_a_journal_uses_a_durable_journal(self, tmp_path, delf_host):
        (tmp_path / "delf.toml").write_text('[agent]\nllm = "scripted"\n')
        assert Agent.from_project(tmp_path, host=delf_host).config.journal == "sql"

    def test_missing_project_folder_is_refused(self, tmp_path):
        with pytest.raises(ConfigurationError, match="does not exist"):
            Agent.from_project(tmp_path / "nowhere")


class TestParameters:
    def test_agent_has_a_parameter_for_every_setting(self):
        options = set(AgentOptions.__annotations__)
        assert set(AgentConfig.model_fields) == options | {"chat", "memory", "strategy"}

    def test_agent_keywords_override_a_given_configuration(self):
        config = AgentConfig(llm="scripted", retry_count=3, strategy="stream")
        own = Agent(config, retry_count=4).config
        assert (own.main_llm.model, own.retry_count, own.strategy) == ("scripted", 4, "stream")
        assert own.model_fields_set == {"llm", "retry_count", "strategy"}

    def test_agent_accepts_a_model_name_first(self):
        assert Agent("scripted").config.main_llm.model == "scripted"

    def test_agent_refuses_a_number_as_configuration(self):
        with pytest.raises(ConfigurationError, match=r"not an? int"):
            Agent(3)

    def test_unknown_option_is_refused_with_a_suggestion(self):
        with pytest.raises(ConfigurationError, match="did you mean 'retry_count'"):
            Agent(llm="scripted", retry_cuont=3)

    def test_chat_option_creates_a_chat(self):
        assert len(Agent(llm="scripted", chat=True).chat) == 0
        with pytest.raises(ConfigurationError, match="did you mean 'keep'"):
            Agent(llm="scripted", chat={"kep": 3})

    @pytest.mark.parametrize("task", ["", "  \n", 42, None])
    def test_invalid_task_is_refused_before_any_model_call(self, task, scripted_model, delf_host):
        with Agent(llm="scripted", host=delf_host) as agent:
            for do in (agent.run, agent.submit):
                with pytest.raises(ConfigurationError, match="the task is"):
                    do(task)
        assert not scripted_model.prompts

    async def test_unknown_granularity_is_refused(self, delf_host, scripted_model):
        async with Agent(llm="scripted", host=delf_host) as agent:
            with pytest.raises(ConfigurationError, match="granularity is 'nonsense'"):
                async for _ in agent.stream("Hi.", granularity="nonsense"):
                    pass

    @pytest.mark.parametrize("llm", ["no-such-model-at-all", "gpt-4o-mini"])
    def test_unavailable_model_is_reported_at_once(self, llm, monkeypatch):
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with pytest.raises(ConfigurationError), Agent(llm=llm) as agent:
            agent.run("Hi.")


class TestResponse:
    def response(self, **given) -> Response:
        return Response(**{"text": "", "status": True, **given})

    def test_response_is_truthy_on_success(self):
        assert self.response(text="4")
        assert not self.response(status=False, error="no money")

    def test_response_text_form_is_its_answer_or_failure(self):
        assert str(self.response(text="4")) == "4"
        failed = self.response(status=False, error="no money", text="half")
        assert str(failed) == "failed: no money\nprinted before it failed:\nhalf"
        with pytest.raises(Exception, match="no money"):
            failed.raise_for_status()
