"""The wire formats of answers: OpenAI, Anthropic, Gemini."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Answer:
    """An answer, whatever the protocol.

    Args:
        usage: Tokens in, out, from the cache, spent on reasoning.
        calls: Names of tools with their arguments as JSON.
    """

    model: str
    text: str
    pieces: list[str]
    usage: tuple[int, ...] | None
    finish_reason: str | None
    include_usage: bool
    calls: tuple[tuple[str, str], ...] = ()

    @property
    def tokens(self) -> tuple[int, int, int, int]:
        """In, out, cached, reasoning; zeros where the script leaves them out."""
        given = (*(self.usage or ()), 0, 0, 0, 0)
        return given[0], given[1], given[2], given[3]

    def halves(self, text: str) -> tuple[str, str]:
        """A text as it comes in two events."""
        half = len(text) // 2
        return text[:half], text[half:]


def _event(data: Any, name: str | None = None) -> bytes:
    head = f"event: {name}\n" if name else ""
    text = data if isinstance(data, str) else json.dumps(data)
    return f"{head}data: {text}\n\n".encode()


class _OpenAI:
    def streams(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def error(self, status: int, message: str, code: str | None) -> Any:
        return {"error": {"message": message, "type": "scripted", "param": None, "code": code}}

    def _usage(self, answer: Answer) -> Any:
        given, out, cached, reasoning = answer.tokens
        return {
            "prompt_tokens": given,
            "completion_tokens": out,
            "total_tokens": given + out,
            "prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": reasoning, "audio_tokens": 0},
        }

    def _finish(self, answer: Answer) -> str | None:
        return "tool_calls" if answer.calls else answer.finish_reason

    def _calls(self, answer: Answer) -> list[Any]:
        return [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for number, (name, arguments) in enumerate(answer.calls)
        ]

    def answer(self, answer: Answer) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.calls:
            message |= {"content": answer.text or None, "tool_calls": self._calls(answer)}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self._finish(answer),
        }
        body: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": answer.model,
            "choices": [choice],
        }
        if answer.usage is not None:
            body["usage"] = self._usage(answer)
        return body

    def events(self, answer: Answer) -> Iterator[bytes]:
        def chunk(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
            choices = (
                [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
            )
            return _event(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion.chunk",
                    "created": 1_700_000_000,
                    "model": answer.model,
                    "choices": choices,
                    **more,
                }
            )

        yield chunk({"role": "assistant", "content": ""})
        for piece in answer.pieces:
            yield chunk({"content": piece})
        for number, call in enumerate(self._calls(answer)):
            first, second = answer.halves(call["function"]["arguments"])
            function = {"name": call["function"]["name"], "arguments": first}
            yield chunk({"tool_calls": [{**call, "index": number, "function": function}]})
            more = {"index": number, "function": {"arguments": second}}
            yield chunk({"tool_calls": [more]})
        yield chunk({}, self._finish(answer))
        if answer.include_usage and answer.usage is not None:
            yield chunk(None, usage=self._usage(answer))
        yield _event("[DONE]")


class _Anthropic:
    _STOPS: Final = {"stop": "end_turn", "length": "max_tokens"}

    def streams(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def error(self, status: int, message: str, code: str | None) -> Any:
        return {"type": "error", "error": {"type": code or "scripted", "message": message}}

    def _usage(self, answer: Answer) -> Any:
        given, out, cached, _reasoning = answer.tokens
        return {
            "input_tokens": given - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": out,
        }

    def _stop(self, answer: Answer) -> str:
        reason = answer.finish_reason or "stop"
        return "tool_use" if answer.calls else self._STOPS.get(reason, reason)

    def _message(self, answer: Answer, content: list[Any], stop: str | None) -> Any:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": self._usage(answer),
        }

    def answer(self, answer: Answer) -> Any:
        text = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
        calls = [
            {"type": "tool_use", "id": f"toolu_{n}", "name": name, "input": json.loads(arguments)}
            for n, (name, arguments) in enumerate(answer.calls)
        ]
        return self._message(answer, [*text, *calls], self._stop(answer))

    def events(self, answer: Answer) -> Iterator[bytes]:
        def event(name: str, **fields: Any) -> bytes:
            return _event({"type": name, **fields}, name)

        yield event("message_start", message=self._message(answer, [], None))
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        yield event("ping")
        for piece in answer.pieces:
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield event("content_block_stop", index=0)
        for number, (name, arguments) in enumerate(answer.calls):
            index = number + 1
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
            yield event("content_block_start", index=index, content_block=block)
            for half in answer.halves(arguments):
                delta = {"type": "input_json_delta", "partial_json": half}
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        delta = {"stop_reason": self._stop(answer), "stop_sequence": None}
        yield event("message_delta", delta=delta, usage=self._usage(answer))
        yield event("message_stop")


class _Gemini:
    _FINISHES: Final = {"stop": "STOP", "length": "MAX_TOKENS"}

    def streams(self, path: str, body: Any) -> bool:
        return ":streamGenerateContent" in path

    def error(self, status: int, message: str, code: str | None) -> Any:
        return {"error": {"code": status, "message": message, "status": code or "SCRIPTED"}}

    def _calls(self, answer: Answer) -> list[Any]:
        return [
            {
                "functionCall": {"name": name, "args": json.loads(arguments)},
                "thoughtSignature": "c2lnbmVk",
            }
            for name, arguments in answer.calls
        ]

    def _part(self, answer: Answer, parts: list[Any], *, last: bool) -> Any:
        given, out, cached, reasoning = answer.tokens
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if last:
            reason = answer.finish_reason or "stop"
            candidate["finishReason"] = self._FINISHES.get(reason, reason)
        return {
            "responseId": "gemini_1",
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": given,
                "candidatesTokenCount": out - reasoning,
                "thoughtsTokenCount": reasoning,
                "cachedContentTokenCount": cached,
                "totalTokenCount": given + out,
            },
            "modelVersion": answer.model,
        }

    def answer(self, answer: Answer) -> Any:
        text = [{"text": answer.text}] if answer.text or not answer.calls else []
        return self._part(answer, [*text, *self._calls(answer)], last=True)

    def events(self, answer: Answer) -> Iterator[bytes]:
        parts = [[{"text": piece}] for piece in answer.pieces]
        parts += [[call] for call in self._calls(answer)]
        for number, each in enumerate(parts, 1):
            yield _event(self._part(answer, each, last=number == len(parts)))


class _Responses:
    """OpenAI's responses; ``test_conformance`` reads them with OpenAI's own client."""

    _REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}

    def streams(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def error(self, status: int, message: str, code: str | None) -> Any:
        return OPENAI.error(status, message, code)

    def _text(self, text: str) -> Any:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _message(self, content: list[Any], status: str) -> Any:
        base = {"type": "message", "id": "msg_1", "role": "assistant"}
        return {**base, "status": status, "content": content}

    def _call(self, number: int, name: str, arguments: str) -> Any:
        ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
        return {"type": "function_call", **ids, "name": name, "arguments": arguments}

    def _response(self, answer: Answer, output: list[Any], status: str | None = None) -> Any:
        given, out, cached, reasoning = answer.tokens
        reason = self._REASONS.get(answer.finish_reason or "")
        used = {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": given + out,
        }
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": answer.model,
            "status": status or ("incomplete" if reason else "completed"),
            "incomplete_details": {"reason": reason} if reason else None,
            "error": None,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": used if answer.usage is not None and status is None else None,
        }

    def answer(self, answer: Answer) -> Any:
        text = [self._message([self._text(answer.text)], "completed")]
        calls = [self._call(n, *call) for n, call in enumerate(answer.calls)]
        return self._response(answer, [*(text if answer.text or not calls else []), *calls])

    def events(self, answer: Answer) -> Iterator[bytes]:
        count = 0

        def event(name: str, **fields: Any) -> bytes:
            nonlocal count
            count += 1
            return _event({"type": name, "sequence_number": count - 1, **fields}, name)

        yield event("response.created", response=self._response(answer, [], "in_progress"))
        whole = self.answer(answer)
        for place, item in enumerate(whole["output"]):
            at = {"output_index": place, "item_id": item["id"]}
            if item["type"] == "message":
                begun = self._message([], "in_progress")
                yield event("response.output_item.added", output_index=place, item=begun)
                at["content_index"] = 0
                yield event("response.content_part.added", **at, part=self._text(""))
                for piece in answer.pieces:
                    yield event("response.output_text.delta", **at, delta=piece, logprobs=[])
            else:
                begun = {**item, "arguments": ""}
                yield event("response.output_item.added", output_index=place, item=begun)
                for half in answer.halves(item["arguments"]):
                    yield event("response.function_call_arguments.delta", **at, delta=half)
            yield event("response.output_item.done", output_index=place, item=item)
        yield event(f"response.{whole['status']}", response=whole)


Protocol = _OpenAI | _Anthropic | _Gemini | _Responses
OPENAI: Final = _OpenAI()
_ANTHROPIC: Final = _Anthropic()
_GEMINI: Final = _Gemini()
_RESPONSES: Final = _Responses()


def of(path: str) -> Protocol | None:
    """The protocol that is spoken at a path, or None."""
    plain = path.partition("?")[0]
    if plain.endswith("/chat/completions"):
        return OPENAI
    if plain.endswith("/responses"):
        return _RESPONSES
    if plain.endswith("/messages"):
        return _ANTHROPIC
    if ":generateContent" in plain or ":streamGenerateContent" in plain:
        return _GEMINI
    return None
