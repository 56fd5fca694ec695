"""Tests that a value which is not allowed raises an error that names it."""

from __future__ import annotations

import re

import pytest

from delf import Agent, Approved, Chat, Edited, Memory, Rejected, tool
from delf.errors import DelfError
from delf.packages.official import client_of_prefix

WORDS = {
    "remember": (lambda _: Approved(remember="session"), "'session'", "until_revoked"),
    "covers": (lambda _: Approved(covers="all"), "'all'", "call, action"),
    "reason": (lambda _: Rejected(reason=5), "5", "text"),
    "arguments": (lambda _: Edited(arguments="x"), "str", "as a dict"),
    "approve": (lambda a: a.approve("req_1", remember="always"), "'always'", "until_revoked"),
    "settle": (lambda a: a.resume("task_1", settle="agian"), "did you mean 'again'", "ask, again"),
    "budget": (lambda a: a.resume("task_1", budget_usd=-1), "budget_usd is -1", "above 0"),
    "reset": (lambda a: a.reset_budget(-1), "limit is -1", "above 0"),
    "timeout": (lambda a: a.run("x", timeout="5"), "timeout is '5'", "above 0"),
    "no time": (lambda a: a.run("x", timeout=-5), "timeout is -5", "above 0"),
    "delay": (lambda a: a.submit("x", queue="q", delay="5"), "delay is '5'", "above 0"),
    "summarize": (lambda _: Chat(summarize="no"), "'no'", "True or False"),
    "persist": (lambda _: Chat(persist="no"), "'no'", "True or False"),
    "role": (lambda _: Chat().by_role("usr"), "did you mean 'user'", "assistant"),
}


@pytest.fixture
def agent(delf_host, scripted_model):
    with Agent(llm="scripted", host=delf_host, sandbox="local") as made:
        yield made


@pytest.mark.parametrize("name", WORDS)
def test_invalid_word_error_lists_the_allowed_words(agent, name):
    use, message, allowed = WORDS[name]
    with pytest.raises(DelfError, match=re.escape(message)) as refused:
        use(agent)
    assert allowed in (refused.value.hint or "")


def test_invalid_on_confirm_result_is_reported_and_not_a_decision(delf_host, scripted_model):
    @tool(effect="write")
    def send() -> None:
        """Send."""

    scripted_model.writes("await send()")
    options = {"llm": "scripted", "host": delf_host, "sandbox": "local", "retry_count": 0}
    with Agent(tools=[send], on_confirm=lambda _: Approved(remember="session"), **options) as made:
        response = made.run("send")
    assert not response.status
    message = "\n".join([response.error, *response.trace.warnings])
    assert "remember of Approved is 'session'" in message


class TestMemoryAdd:
    @pytest.fixture
    def memory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with_words = Memory(path=tmp_path / "memory.db", embedding_model="off")
        yield with_words
        with_words.close()

    @pytest.mark.parametrize(
        "name",
        [
            "missing.md",
            "my notes.md",
            "notes/missing.txt",
            "./notes",
            "~/notes",
            "/no/such",
            "a.pdf",
        ],
    )
    def test_missing_file_raises(self, memory, name):
        with pytest.raises(DelfError, match="there is no file"):
            memory.add(name)
        assert len(memory) == 0

    @pytest.mark.parametrize(
        "text",
        [
            "Ada likes tea.",
            "See README.md for the rules of the team.",
            "one",
            "50/50 is fair",
            "a\nb.md",
        ],
    )
    def test_memory_add_accepts_a_text(self, memory, text):
        assert memory.add(text) > 0

    def test_memory_save_accepts_any_text(self, memory):
        memory.save("missing.md")
        assert memory.context() == "missing.md"


def test_missing_provider_plugin_is_named_by_its_prefix():
    assert client_of_prefix("recorded:answers.jsonl") == ("recorded:*", "recorded")
    assert client_of_prefix("gpt-4o-mini") is None
    assert client_of_prefix("llama3:8b") is None


class TestOneInsteadOfSeveral:
    """An option that takes several values accepts one."""

    @pytest.fixture
    def add(self):
        @tool(confirm=False)
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        return add

    @pytest.mark.parametrize("as_path", [False, True])
    def test_single_file_is_accepted_without_a_list(self, agent, scripted_model, tmp_path, as_path):
        path = tmp_path / "a.csv"
        path.write_text("x\n1\n")
        scripted_model.writes("print(len(open('a.csv').read()))")
        assert agent.run("count", files=path if as_path else str(path)).text == "4"
        assert Agent(llm="scripted", files=path).config.files == (str(path),)

    def test_single_tool_is_accepted_without_a_list(self, delf_host, add):
        assert Agent(llm="scripted", host=delf_host, tools=add).tools == (add,)

    def test_iterable_tool_of_another_framework_is_one_tool(self, delf_host):
        class Search:
            name = "search"
            description = "Search."
            args_schema = {"type": "object", "properties": {}}

            async def ainvoke(self, arguments):
                return arguments

            def __iter__(self):
                return iter([("name", self.name)])

        (made,) = Agent(llm="scripted", host=delf_host, tools=Search()).tools
        assert made.name == "search"

    def test_text_is_not_a_tool(self, delf_host):
        with pytest.raises(DelfError, match=r"^str is not a tool"):
            Agent(llm="scripted", host=delf_host, tools="sql")

    async def test_single_listener_is_accepted_without_a_list(self, agent, scripted_model):
        scripted_model.writes("print(1)")
        events = []
        await agent.arun("count", listeners=events.append)
        assert events

    def test_single_connection_name_is_accepted_without_a_list(self, tmp_path):
        (tmp_path / "delf.toml").write_text('[agent]\nllm = "scripted"\n')
        with pytest.raises(DelfError, match="'tickets'"):
            Agent.from_project(tmp_path, trust=True, connections="tickets")


@pytest.mark.parametrize("method", ["run", "arun", "submit", "asubmit", "aresume"])
async def test_mistyped_keyword_of_a_method_is_named(agent, method):
    with pytest.raises(TypeError, match="'timeuot'; did you mean 'timeout'") as refused:
        await getattr(agent, method)("x", timeuot=1)
    assert "timeout, " in refused.value.hint


@pytest.mark.parametrize("kind", [lambda: 1, print, [].append, re.compile("x").match])
def test_function_as_output_type_is_refused(agent, kind):
    with pytest.raises(DelfError, match="is not a type of an answer") as refused:
        agent.run("x", output=kind)
    assert "pydantic model" in refused.value.hint
