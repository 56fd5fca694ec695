"""The place for a script in an answer, as the model is asked for it."""

import json

import pytest

from delf import Agent, LLMConfig
from delf.errors import ConfigurationError, ModelConfigurationError
from delf.messages import ModelReply, ToolCall, ToolResult, Usage
from delf_strategy_codegen.strategy import CodegenStrategy
from support.openai_server import Reply


@pytest.fixture
def make_agent(delf_host):
    """Makes agents, and stops them at the end."""
    made = []

    def make(**options):
        made.append(Agent(llm="scripted", sandbox="local", host=delf_host, **options))
        return made[-1]

    yield make
    for agent in made:
        agent.stop()


def call_of(code):
    call = ToolCall(id="1", name="run", arguments=json.dumps({"code": code}))
    return ModelReply(text="", model="scripted", calls=(call,), usage=Usage(output_tokens=1))


def asked(model):
    return [[tool.name for tool in request.tools] for request in model.requests]


def test_with_code_in_set_to_tool_the_script_comes_from_a_tool_call(make_agent, scripted_model):
    scripted_model.says(call_of("print(1 +"), call_of("print(6 * 7)"))
    agent = make_agent(strategy=CodegenStrategy(code_in="tool"))
    assert agent.run("what is it?").text == "42"
    assert asked(scripted_model) == [["run"], ["run"]]
    assert "one call of run" in scripted_model.prompts[0]
    assert "```python block" not in scripted_model.prompts[0]
    call, result = (message.parts[0] for message in scripted_model.requests[1].messages[-2:])
    assert (call.name, json.loads(call.arguments)) == ("run", {"code": "print(1 +"})
    assert (result.id, result.name) == (call.id, "run")
    assert result.text.startswith("The script failed: SyntaxError")


def test_code_in_fence_never_offers_the_run_tool(make_agent, scripted_model):
    scripted_model.says("I cannot.", call_of("print(42)"))
    assert make_agent(strategy=CodegenStrategy(code_in="fence")).run("what is it?").text == "42"
    assert asked(scripted_model) == [[], []]


def test_code_in_auto_offers_a_tool_after_prose(make_agent, scripted_model):
    scripted_model.says("I would multiply.", call_of("print(42)"))
    assert make_agent().run("what is it?").text == "42"
    assert asked(scripted_model) == [[], ["run"]]
    assert "one call of run" in scripted_model.prompts[1]


def test_code_in_auto_keeps_the_offered_tool(make_agent, scripted_model):
    failing = call_of("print(len(7))")
    scripted_model.says(
        "I would count.", failing, "```python\nprint(len(8))\n```", call_of("print(9)")
    )
    assert make_agent(retry_count=3).run("what is it?").text == "9"
    assert asked(scripted_model) == [[], ["run"], ["run"], ["run"]]
    first, second = (
        scripted_model.requests[2].messages[-2:],
        scripted_model.requests[3].messages[-2:],
    )
    assert [type(message.parts[0]) for message in first] == [ToolCall, ToolResult]
    assert second[0].text == "```python\nprint(len(8))\n```"
    assert "TypeError" in second[1].text


def test_model_without_tool_support_is_offered_no_tools(make_agent, scripted_model):
    scripted_model.takes_tools = False
    scripted_model.says("", "")
    response = make_agent().run("what is it?")
    assert "answered without a script 2 times" in response.error
    assert asked(scripted_model) == [[], []]
    with pytest.raises(ModelConfigurationError, match="cannot be given tools"):
        make_agent(strategy=CodegenStrategy(code_in="tool")).run("what is it?")


def test_project_option_sets_code_in(delf_host, scripted_model, tmp_path):
    def project(code_in):
        (tmp_path / "delf.toml").write_text(f"[plugins.strategy-codegen]\ncode_in = '{code_in}'\n")
        return Agent.from_project(tmp_path, llm="scripted", sandbox="local", host=delf_host)

    scripted_model.says(call_of("print(42)"))
    with project("tool") as agent:
        assert agent.run("what is it?").text == "42"
    assert asked(scripted_model) == [["run"]]
    with pytest.raises(ConfigurationError, match="code_in: Input sho"), project("nowhere") as agent:
        agent.run("what is it?")


REFUSALS = {
    "vLLM": (400, '"auto" tool choice requires --enable-auto-tool-choice'),
    "Ollama": (400, "test-model does not support tools"),
    "OpenRouter": (404, "No endpoints found that support tool use"),
    "llama.cpp": (500, "tools param requires --jinja flag"),
}


@pytest.mark.parametrize(("status", "words"), REFUSALS.values(), ids=REFUSALS)
def test_code_in_auto_falls_back_to_a_fence_if_tools_are_refused(
    status, words, openai_server, delf_host
):
    texts = iter(["I would multiply.", "```python\nprint(6 * 7)\n```"])

    def answer(request):
        if "tools" in request.json:
            return Reply(status=status, error=words, headers={"Retry-After": "0"})
        return next(texts)

    server = openai_server(answer)
    llm = LLMConfig("test-model", base_url=server.base_url, api_key="k")
    with Agent(llm=llm, sandbox="local", host=delf_host) as agent:
        assert agent.run("what is it?").text == "42"
    first, *refused, last = server.json
    assert refused
    assert all("tools" in each for each in refused)
    assert "tools" not in first
    assert "tools" not in last
    assert "one ```python block" in last["messages"][-1]["content"]
    assert [each["role"] for each in last["messages"]][-2:] == ["assistant", "user"]


def test_code_in_auto_raises_errors_that_do_not_concern_tools(openai_server, delf_host):
    server = openai_server(["I would multiply.", Reply(status=401, error="no such key")])
    llm = LLMConfig("test-model", base_url=server.base_url, api_key="k")
    with Agent(llm=llm, sandbox="local", host=delf_host) as agent:
        assert "rejected the key" in agent.run("what is it?").error
    assert len(server.requests) == 2
