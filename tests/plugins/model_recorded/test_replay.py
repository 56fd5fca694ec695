"""Replaying: which answer a request gets, and what a mismatch says."""

import asyncio
import json

import pytest

from delf.errors import ModelConfigurationError
from delf.llm import LLMConfig
from delf.messages import FilePart, ImagePart, ModelRequest, Usage, system, user
from delf.protocols.context import PluginContext
from delf_model_recorded import RecordedModel, RecordingMismatch, recording
from support.model_fixtures import ask, read_stream
from support.program import delf, write_recording


def replay(tmp_path, *lines):
    path = tmp_path / "some.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return RecordedModel(PluginContext(), LLMConfig(f"recorded:{path}"))


def whole(request, text="ok"):
    return {"request": recording.describe_request(request), "reply": {"text": text}}


def by_hand(*texts, reply="ok", **more):
    return {"request": {"contains": list(texts), **more}, "reply": {"text": reply}}


async def test_replay_returns_every_field_of_a_reply(tmp_path):
    reply = {
        "text": "print(1)\n",
        "usage": {"input_tokens": 9, "cached_tokens": 3, "output_tokens": 2},
        "cost_usd": 0.25,
        "model": "gpt-5.5",
        "finish_reason": "length",
    }
    model = replay(tmp_path, {"about": "By hand."}, {"request": {"contains": []}, "reply": reply})
    got = await model.complete(ask())
    assert got.text == "print(1)\n"
    assert got.usage == Usage(input_tokens=9, cached_tokens=3, output_tokens=2)
    assert (got.cost_usd, got.model, got.finish_reason) == (0.25, "gpt-5.5", "length")


async def test_replayed_stream_arrives_in_several_pieces(tmp_path):
    text = "".join(chr(97 + i % 26) for i in range(101))
    model = replay(tmp_path, by_hand(reply=text), by_hand(reply=""), by_hand(reply="x"))
    pieces, reply = await read_stream(model, ask())
    assert 2 <= len(pieces) <= 5
    assert "".join(pieces) == reply.text == text
    assert (await read_stream(model, ask()))[0] == []
    assert (await read_stream(model, ask()))[0] == ["x"]


async def test_tasks_in_any_order_get_their_own_replies(tmp_path):
    requests = [ask(f"task {i}") for i in range(40)]
    lines = [whole(request, f"answer {i}") for i, request in enumerate(requests)]
    model = replay(tmp_path, *lines)
    replies = await asyncio.gather(*(model.complete(r) for r in reversed(requests)))
    assert [reply.text for reply in reversed(replies)] == [f"answer {i}" for i in range(40)]


async def test_recorded_reply_is_used_once_and_in_order(tmp_path):
    model = replay(tmp_path, whole(ask(), "first"), whole(ask(), "second"))
    assert [(await model.complete(ask())).text for _ in range(2)] == ["first", "second"]
    with pytest.raises(RecordingMismatch, match="all 2 entries are used"):
        await model.complete(ask())


async def test_handwritten_recording_needs_all_expected_texts(tmp_path):
    model = replay(
        tmp_path,
        by_hand("March", "revenue", reply="both"),
        by_hand("revenue", purpose="summarize", reply="summary"),
        by_hand("revenue", reply="one"),
    )
    assert (await model.complete(ask("the revenue?"))).text == "one"
    assert (await model.complete(ask("revenue in March?"))).text == "both"
    assert (await model.complete(ask("revenue", purpose="summarize"))).text == "summary"


@pytest.mark.parametrize(
    "other",
    [
        ask("another"),
        ask(purpose="summarize"),
        ask(settings={"temperature": 1}),
        ModelRequest(messages=(system("Be bad."), user("hi"))),
        ModelRequest(messages=(system("Be good."), user("hi", [ImagePart(b"x", "image/png")]))),
        ModelRequest(messages=(*ask().messages, user("more"))),
    ],
)
async def test_complete_request_must_match_exactly(other, tmp_path):
    model = replay(tmp_path, whole(ask()))
    with pytest.raises(RecordingMismatch):
        await model.complete(other)
    assert (await model.complete(ask())).text == "ok"


async def test_images_and_files_match_by_content(tmp_path):
    def request(data):
        parts = [ImagePart(data, "image/png"), FilePart("a.pdf", data, "application/pdf")]
        return ModelRequest(messages=(user("see", parts),))

    line = whole(request(b"one"))
    assert "one" not in json.dumps(line)
    model = replay(tmp_path, line)
    with pytest.raises(RecordingMismatch, match="sha256"):
        await model.complete(request(b"two"))
    assert (await model.complete(request(b"one"))).text == "ok"


async def test_mismatch_error_shows_the_first_difference(tmp_path):
    rules = "rule one\nrule two\nrule three"
    recorded = ModelRequest(messages=(system(rules), user("How many orders?")))
    asked = ModelRequest(messages=(system(rules.replace("two", "2")), user("How many orders?")))
    model = replay(tmp_path, {"about": "x"}, whole(recorded), by_hand("zebra"))
    with pytest.raises(RecordingMismatch) as caught:
        await model.complete(asked)
    message = caught.value.message
    assert "some.jsonl" in message
    assert "2 unused entries (of 2)" in message
    assert "line 2" in message
    assert "\n-system: rule two\n+system: rule 2\n" in message
    assert "How many" not in message
    assert "--record" in caught.value.hint


@pytest.mark.parametrize(
    ("line", "asked", "expected"),
    [
        (whole(ask()), ask(purpose="summarize"), '-purpose: "generate"\n+purpose: "summarize"'),
        (whole(ask()), ask(settings={"seed": 1}), '+settings: {"seed": 1}'),
        (whole(ask()), ModelRequest(messages=ask().messages[:1]), "\n-user: "),
        (by_hand("hi", "March", "x"), ask(), "the request does not contain 'March', 'x'"),
        (by_hand("hi", purpose="setup"), ask(), '-purpose: "setup"\n+purpose: "generate"'),
    ],
)
async def test_mismatch_error_names_the_differing_field(line, asked, expected, tmp_path):
    with pytest.raises(RecordingMismatch) as caught:
        await replay(tmp_path, line).complete(asked)
    assert expected in caught.value.message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ({"about": "not the first line"}, "about: Extra inputs are not permitted"),
        ({"request": {"contains": []}}, "reply: Field required"),
        ({"request": {}, "reply": {"text": ""}}, "request.messages: Field required"),
        (
            {"request": {"messages": [3]}, "reply": {"text": ""}},
            "request.messages.0: Input should be a valid dictionary",
        ),
        (
            {"request": {"contians": []}, "reply": {"text": ""}},
            "request.contians: Extra inputs are not permitted",
        ),
        (
            {"request": {"contains": []}, "reply": {"text": "", "usage": {"in": 1}}},
            "reply.usage.in: Extra inputs are not permitted",
        ),
    ],
)
def test_malformed_recording_error_names_the_line(line, problem, tmp_path):
    with pytest.raises(ModelConfigurationError) as caught:
        replay(tmp_path, {"about": "x"}, by_hand(), line)
    assert "some.jsonl, line 3: " in caught.value.message
    assert problem in caught.value.message


def test_missing_recording_is_reported(tmp_path):
    with pytest.raises(ModelConfigurationError, match=r"no recording at .*none\.jsonl"):
        RecordedModel(PluginContext(), LLMConfig(f"recorded:{tmp_path}/none.jsonl"))
    with pytest.raises(ModelConfigurationError, match="cannot be read"):
        RecordedModel(PluginContext(), LLMConfig(f"recorded:{tmp_path}"))
    with pytest.raises(ModelConfigurationError, match="needs the path"):
        RecordedModel(PluginContext(), LLMConfig("recorded:"))


async def test_blank_lines_and_unicode_line_separators_are_accepted(tmp_path):
    text = "a\u2028b\u0085c 🙂"
    line = json.dumps(by_hand(text, reply=text), ensure_ascii=False)
    model = replay(tmp_path, "", line + "\r", "", by_hand())
    assert (await model.complete(ask(text))).text == text
    assert repr(model).endswith("1 of 2 unused)")


def test_relative_recording_path_is_next_to_delf_toml(tmp_path):
    write_recording(tmp_path / "answers.jsonl", *["print('done')"] * 2)
    (tmp_path / "delf.toml").write_text('[agent]\nllm = "recorded:answers.jsonl"\n')
    below = tmp_path / "below"
    below.mkdir()
    done = delf("run", "x", cwd=below)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    (task,) = json.loads(delf("runs", "list", "--json", cwd=below).stdout)
    events = delf("runs", "events", task["task_id"], "--json", cwd=below).stdout.splitlines()
    called = [event for event in map(json.loads, events) if event["type"] == "ModelCalled"]
    assert [event["data"]["model"] for event in called] == ["recorded:answers.jsonl"]
    typed = delf("run", "x", "--llm", "recorded:answers.jsonl", cwd=below)
    assert typed.returncode != 0
    assert "there is no recording at answers.jsonl" in typed.stderr
    assert delf("run", "x", "--llm", "recorded:../answers.jsonl", cwd=below).returncode == 0
