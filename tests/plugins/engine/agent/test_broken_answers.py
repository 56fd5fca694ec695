"""Tests that a truncated answer is never run, and never returned as the answer."""

import json

import pytest

from delf import tool
from delf.events import ModelReplied
from delf.messages import ModelReply, ToolCall
from delf.specs import ModelSpec

HALF = "```python\nawait refund(1)\nawait refund(2)\n"
WHOLE = "```python\nawait refund(7)\nprint('done')\n```"


@pytest.fixture
def refund():
    done = []

    @tool(confirm=False)
    async def refund(order: int) -> None:
        """Refund an order."""
        done.append(order)

    refund.done = done
    return refund


def reply(text, reason="length", **more):
    return ModelReply(text=text, model="scripted", finish_reason=reason, cost_usd=0.0, **more)


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS"])
def test_truncated_script_is_never_run(make_agent, scripted_model, refund, reason):
    scripted_model.says(reply(HALF, reason), WHOLE)
    response = make_agent(refund).run("x")
    assert (response.text, refund.done) == ("done", [7])
    asked = scripted_model.requests[-1].messages
    assert (asked[-2].role, asked[-2].text) == ("assistant", HALF)
    assert "broke off" in asked[-1].text


def test_truncated_answer_is_continued(make_agent, scripted_model, refund):
    scripted_model.says(reply(HALF), reply("await refund(3)\n"), "print('all three')\n```")
    response = make_agent(refund).run("x")
    assert (response.text, refund.done) == ("all three", [1, 2, 3])


def test_ambiguous_continuation_asks_for_the_whole_answer(make_agent, scripted_model, refund):
    scripted_model.says(reply(HALF), "await refund(2)\nawait refund(3)\n```", WHOLE)
    assert make_agent(refund).run("x").status
    assert refund.done == [7]
    assert "from the beginning" in scripted_model.requests[-1].messages[-1].text


@pytest.mark.parametrize(
    ("reason", "why", "asked"),
    [
        ("length", "broke off at the limit of its length", 4),
        ("content_filter", "content filter", 1),
        ("SAFETY", "content filter", 1),
        ("refusal", "refused", 1),
        ("error", "broke off before its end", 2),
    ],
)
def test_truncated_answer_fails_with_its_text(
    make_agent, scripted_model, refund, reason, why, asked
):
    scripted_model.default = reply(HALF, reason)
    response = make_agent(refund).run("x")
    assert not response.status
    assert refund.done == []
    assert why in response.error
    assert "await refund(1)" in response.error
    assert response.exception.hint
    assert len(scripted_model.requests) == asked


def test_cut_answer_is_asked_again_with_a_doubled_limit(make_agent, scripted_model, refund):
    scripted_model.says(reply(HALF, max_tokens=100), WHOLE)
    make_agent(refund).run("x")
    assert scripted_model.requests[0].settings == {}
    assert scripted_model.requests[1].settings == {"max_tokens": 200}


def test_truncated_run_call_is_never_run(make_agent, scripted_model, refund):
    begun = ToolCall(id="1", name="run", arguments=json.dumps({"code": "await refund(1)"}))
    scripted_model.says(reply("", calls=(begun,)), WHOLE)
    assert make_agent(refund).run("x").text == "done"
    assert refund.done == [7]


def test_script_draft_in_reasoning_is_never_run(make_agent, scripted_model, refund):
    scripted_model.says(f"[THINK]Perhaps\n{HALF}```\nor so.[/THINK]\n{WHOLE}")
    response = make_agent(refund).run("x")
    assert refund.done == [7]
    (message,) = [event for event in response.events if isinstance(event, ModelReplied)]
    assert "[THINK]" in message.text  # the journal has the whole answer


def test_broken_stream_is_asked_again(make_agent, scripted_model, delf_host, refund):
    class Breaking:
        asked = 0

        async def stream(self, request):
            from delf.errors import LLMExecutionError
            from delf.messages import ModelDelta

            self.asked += 1
            text = HALF if self.asked == 1 else WHOLE
            yield ModelDelta(text)
            if self.asked == 1:
                raise LLMExecutionError("the answer broke off after 36 characters")
            yield ModelReply(text=text, model="breaking", cost_usd=0.0)

        async def complete(self, request):
            raise AssertionError

        async def aclose(self):
            pass

    model = Breaking()
    spec = ModelSpec(name="breaking", summary="x", factory="x:y", serves=("breaking",))
    delf_host.provide(spec, lambda context, config: model)
    response = make_agent(refund, llm="breaking", stream=True).run("x")
    assert (response.text, refund.done, model.asked) == ("done", [7], 2)


def test_script_model_call_never_returns_a_truncated_answer(make_agent, scripted_model):
    scripted_model.writes("print(await llm.call('count'))").says(reply("One, tw"), "o, three.")
    assert make_agent().run("x").text == "One, two, three."


def test_script_gets_an_error_for_an_answer_that_a_filter_stopped(make_agent, scripted_model):
    scripted_model.writes(
        "try:\n    print(await llm.call('count'))\nexcept ToolError as error:\n    print(error)"
    ).says(reply("One, tw", "content_filter"))
    text = make_agent().run("x").text
    assert "content filter" in text
    assert "One, tw" in text


def test_reasoning_is_removed_from_answers_to_scripts(make_agent, scripted_model):
    scripted_model.writes("print(await llm.call('count'))").says("<think>1, 2</think>\n\nthree")
    assert make_agent().run("x").text == "three"


def test_journal_records_that_an_answer_was_truncated(make_agent, scripted_model, refund):
    scripted_model.says(reply(HALF), WHOLE)
    events = make_agent(refund).run("x").events
    assert [e.finish_reason for e in events if isinstance(e, ModelReplied)] == ["length", "stop"]
