"""Tests that the error of a faulty model factory names the model and the plugin."""

import pytest

from delf import Agent


@pytest.mark.parametrize("message", ["AttributeError: no such thing", "argument: 'client'"])
async def test_failing_model_factory_is_named(delf_host, scripted_model, message: str) -> None:
    def raises(context, config):
        raise AttributeError("no such thing")

    factory = raises if message.startswith("AttributeError") else lambda client: scripted_model
    delf_host.provide(scripted_model.spec, factory)
    with pytest.raises(Exception, match="the model 'scripted'") as caught:
        async with Agent(llm="scripted", host=delf_host) as agent:
            (await agent.arun("x")).raise_for_status()
    assert message in str(caught.value)
    assert "its factory" in str(getattr(caught.value, "hint", ""))


async def test_error_of_a_crashing_model_names_the_model(delf_host, scripted_model) -> None:
    class Broken:
        async def complete(self, request):
            raise AttributeError("'LLMConfig' object has no attribute 'popleft'")

        def stream(self, request):
            raise AssertionError("it is not asked for")

        async def count_tokens(self, request):
            return 1

        async def aclose(self):
            """Nothing is held."""

    delf_host.provide(scripted_model.spec, lambda context, config: Broken())
    async with Agent(llm="scripted", host=delf_host) as agent:
        response = await agent.arun("x")
    assert "unexpected AttributeError inside the model 'scripted' of" in str(response.error)
