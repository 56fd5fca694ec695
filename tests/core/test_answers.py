import pytest

from delf.answers import join_continuation, split_reasoning, without_reasoning
from delf.messages import ModelReply, ToolCall

ANSWER = "The answer is 42."
FAMILIES = {
    "deepseek": f"<think>\nhm, 41?\n</think>\n\n{ANSWER}",
    "qwen, no thought": f"<think>\n\n</think>\n\n{ANSWER}",
    "a template that swallows the first mark": f"hm, 41?\n</think>\n\n{ANSWER}",
    "no new line before the last mark": f"hm, 41?</think>\n\n{ANSWER}",
    "claude": f"<thinking>hm, 41?</thinking>\n{ANSWER}",
    "artifacts": f"<antThinking>hm, 41?</antThinking>\n{ANSWER}",
    "marco": f"<Thought>hm, 41?</Thought>\n{ANSWER}",
    "exaone": f"<thought>\nhm, 41?\n</thought>\n\n{ANSWER}",
    "reasoning": f"<reasoning>hm, 41?</reasoning>{ANSWER}",
    "scratchpad": f"<scratchpad>hm, 41?</scratchpad>\n{ANSWER}",
    "hermes": f"<scratch_pad>hm, 41?</scratch_pad>\n{ANSWER}",
    "with an attribute": f'<thinking time="3s">hm, 41?</thinking>\n{ANSWER}',
    "seed": f"<seed:think>hm, 41?</seed:think>\n{ANSWER}",
    "longcat": f"<longcat_think>hm, 41?</longcat_think>\n{ANSWER}",
    "magistral": f"[THINK]hm, 41?[/THINK]{ANSWER}",
    "kimi": f"◁think▷hm, 41?◁/think▷{ANSWER}",
    "sky": (
        f"<|begin_of_thought|>\nhm, 41?\n<|end_of_thought|>\n"
        f"<|begin_of_solution|>\n{ANSWER}\n<|end_of_solution|>"
    ),
    "command": (
        f"<|START_THINKING|>hm, 41?<|END_THINKING|><|START_RESPONSE|>{ANSWER}<|END_RESPONSE|>"
    ),
    "apertus": f"<|inner_prefix|>hm, 41?<|inner_suffix|>{ANSWER}",
    "gemma": f"<|channel>thought\nhm, 41?<channel|>{ANSWER}",
    "granite": f"Here is my thought process:\nhm, 41?\nHere is my response:\n{ANSWER}",
    "two thoughts": f"<think>hm</think>\n<think>41?</think>\n{ANSWER}",
    "harmony": (
        "<|channel|>analysis<|message|>hm, 41?<|end|><|start|>assistant"
        f"<|channel|>final<|message|>{ANSWER}<|return|>"
    ),
    "harmony, its first mark swallowed": (
        f"hm, 41?<|end|><|start|>assistant<|channel|>final<|message|>{ANSWER}"
    ),
    "harmony without its marks": f"analysisWe say 41?assistantfinal{ANSWER}",
    "a mark at the end": f"{ANSWER}<|im_end|>",
    "marks at both ends": f"<|im_start|>assistant\n{ANSWER}<|eot_id|>",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_reasoning_is_separated_from_the_answer(name):
    thoughts, words, ended = split_reasoning(FAMILIES[name])
    assert (words.strip(), ended) == (ANSWER, True)
    assert "41" not in words
    assert ("41" in FAMILIES[name]) == ("41" in thoughts)


@pytest.mark.parametrize(
    "text",
    [
        "Write it between <think> and </think>.",
        "The tag `<think>` opens, and `</think>` closes.",
        "```html\n<think>x</think>\n```",
        "```python\nprint('''\n</think>\n''')\n```",
        "A [THINK] block ends with [/THINK].\nThat is all.",
        "analysis of the data: fine",
        "<thesis>x</thesis>",
        "",
    ],
)
def test_think_tags_inside_prose_are_kept(text):
    assert split_reasoning(text) == ("", text, True)


def test_closing_mark_in_a_later_code_block_is_ignored():
    text = f"hm, 41?\n</think>\n{ANSWER}\n```\nprint('''\n</think>\n''')\n```"
    thoughts, words, ended = split_reasoning(text)
    assert (thoughts, ended) == ("hm, 41?", True)
    assert words == text.partition("</think>\n")[2]


@pytest.mark.parametrize(
    "text",
    [
        "<think>hm, and so",
        "[THINK]hm",
        "◁think▷hm",
        "<|begin_of_thought|>hm",
        "<seed:think>```python\ndraft()\n```",
        "<|channel|>analysis<|message|>hm, and so",
    ],
)
def test_unclosed_reasoning_is_a_broken_answer(text):
    reply = without_reasoning(ModelReply(text=text, model="m"))
    assert (reply.text, reply.broken_by) == ("", "break")
    assert "hm" in reply.reasoning or "draft" in reply.reasoning


def test_harmony_call_without_final_channel_is_the_text():
    text = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.run <|constrain|>json<|message|>{"code": "print(1)"}<|call|>'
    )
    assert split_reasoning(text) == ("hm", '{"code": "print(1)"}', True)


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("stop", None),
        ("end_turn", None),
        ("tool_calls", None),
        ("STOP", None),
        ("eos", None),
        ("length", "length"),
        ("max_tokens", "length"),
        ("MAX_TOKENS", "length"),
        ("model_context_window_exceeded", "length"),
        ("content_filter", "filter"),
        ("SAFETY", "filter"),
        ("RECITATION", "filter"),
        ("refusal", "refusal"),
        ("cut", "break"),
        ("MALFORMED_FUNCTION_CALL", "break"),
    ],
)
def test_finish_reasons_of_every_provider_show_a_cut_answer(reason, why):
    assert ModelReply(text="x", model="m", finish_reason=reason).broken_by == why


HALF = "Here:\n```python\nrows = find(1)\nfor row in rows:\n    ref"


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("One, tw", "o, three.", "One, two, three."),
        ("One, two", "One, two, three.", "One, two, three."),
        ("", "All of it.", "All of it."),
        (HALF, "und(row)\n```", HALF + "und(row)\n```"),
        (HALF, "    refund(row)\n```", HALF[:-7] + "    refund(row)\n```"),
        (HALF, "refund(row)\n```", HALF[:-7] + "    refund(row)\n```"),
        (HALF, f"{HALF}und(row)\n```", f"{HALF}und(row)\n```"),
        (HALF, "All of it:\n```python\nprint(1)\n```", "All of it:\n```python\nprint(1)\n```"),
        (HALF, "rows = find(1)\nprint(rows)\n```", f"{HALF[:16]}rows = find(1)\nprint(rows)\n```"),
        ("```python\nrefund(1)\n", "refund(2)\n```", "```python\nrefund(1)\nrefund(2)\n```"),
        ("```python\na = 1\nrefund(1)\n", "refund(1)\nrefund(2)\n```", None),
    ],
)
def test_continued_answers_are_joined_at_their_overlap(first, second, whole):
    assert join_continuation(first, second) == whole


def test_reply_with_calls_keeps_its_calls():
    call = ToolCall(id="1", name="run", arguments="{}")
    reply = without_reasoning(ModelReply(text="<think>hm", model="m", calls=(call,)))
    assert (reply.calls, reply.broken_by) == ((call,), None)
