"""How the providers put an answer on the wire: OpenAI, Anthropic, Gemini."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Answer:
    """An answer, whatever the protocol. ``usage`` is in, out, from the cache."""

    model: str
    text: str
    pieces: list[str]
    usage: tuple[int, ...] | None
    finish_reason: str
    include_usage: bool

    @property
    def tokens(self) -> tuple[int, int, int]:
        """In, out, cached; zeros where the script leaves them out."""
        given = (*(self.usage or ()), 0, 0, 0)
        return given[0], given[1], given[2]


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
        given, out, cached = answer.tokens
        return {
            "prompt_tokens": given,
            "completion_tokens": out,
            "total_tokens": given + out,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def answer(self, answer: Answer) -> Any:
        message = {"role": "assistant", "content": answer.text}
        body: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": answer.model,
            "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
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
        yield chunk({}, answer.finish_reason)
        if answer.include_usage and answer.usage is not None:
            yield chunk(None, usage=self._usage(answer))
        yield _event("[DONE]")


class _Anthropic:
    def streams(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def error(self, status: int, message: str, code: str | None) -> Any:
        return {"type": "error", "error": {"type": code or "scripted", "message": message}}

    def _usage(self, answer: Answer) -> Any:
        given, out, cached = answer.tokens
        return {
            "input_tokens": given - cached,
            "cache_read_input_tokens": cached,
            "cache_creation_input_tokens": 0,
            "output_tokens": out,
        }

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
        return self._message(answer, [{"type": "text", "text": answer.text}], "end_turn")

    def events(self, answer: Answer) -> Iterator[bytes]:
        def event(name: str, **fields: Any) -> bytes:
            return _event({"type": name, **fields}, name)

        yield event("message_start", message=self._message(answer, [], None))
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in answer.pieces:
            yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        yield event("content_block_stop", index=0)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        yield event("message_delta", delta=delta, usage=self._usage(answer))
        yield event("message_stop")


class _Gemini:
    def streams(self, path: str, body: Any) -> bool:
        return ":streamGenerateContent" in path

    def error(self, status: int, message: str, code: str | None) -> Any:
        return {"error": {"code": status, "message": message, "status": code or "SCRIPTED"}}

    def _part(self, answer: Answer, text: str, finish: str | None) -> Any:
        given, out, cached = answer.tokens
        candidate: dict[str, Any] = {
            "content": {"role": "model", "parts": [{"text": text}]},
            "index": 0,
        }
        if finish:
            candidate["finishReason"] = finish
        return {
            "candidates": [candidate],
            "usageMetadata": {
                "promptTokenCount": given,
                "candidatesTokenCount": out,
                "cachedContentTokenCount": cached,
                "totalTokenCount": given + out,
            },
            "modelVersion": answer.model,
        }

    def answer(self, answer: Answer) -> Any:
        return self._part(answer, answer.text, "STOP")

    def events(self, answer: Answer) -> Iterator[bytes]:
        for number, piece in enumerate(answer.pieces, 1):
            last = number == len(answer.pieces)
            yield _event(self._part(answer, piece, "STOP" if last else None))


Protocol = _OpenAI | _Anthropic | _Gemini
OPENAI: Final = _OpenAI()
_ANTHROPIC: Final = _Anthropic()
_GEMINI: Final = _Gemini()


def of(path: str) -> Protocol | None:
    """The protocol that is spoken at a path, or None."""
    plain = path.partition("?")[0]
    if plain.endswith("/chat/completions"):
        return OPENAI
    if plain.endswith("/messages"):
        return _ANTHROPIC
    if ":generateContent" in plain or ":streamGenerateContent" in plain:
        return _GEMINI
    return None
