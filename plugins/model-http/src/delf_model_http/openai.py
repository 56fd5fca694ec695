"""OpenAI's chat completions, as most servers speak them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from delf.messages import ModelDelta
from delf_model_http.address import joined
from delf_model_http.answer import (
    Answer,
    ReportedError,
    Tokens,
    fields,
    integer_field,
    items,
    required,
)
from delf_model_http.catalog import Facts
from delf_model_http.dialect import RequestParts
from delf_model_providers import chat, searches
from delf_model_providers.endpoint import Endpoint
from delf_model_providers.families import OPENAI_URL

_REASONING: Final = re.compile(r"(?:ft:)?(?:o[1-9](?:-|$)|gpt-5(?!.*chat))")
# Matches models that refuse tools in chat completions, because they reason by default.
_REFUSES_TOOLS: Final = re.compile(r"(?:ft:)?gpt-(?:5\.[4-9]|[6-9]|\d\d)(?!.*(?:chat|search))")
# The names of fields that may have a server's error message.
_ERROR_FIELDS: Final = ("message", "detail", "errors", "error_msg", "msg")
# The fields of a message with calls that servers of open models expect back.
_SENT_BACK_FIELDS: Final = ("reasoning_content", "reasoning", "reasoning_details")
# The names of settings that OpenAI's reasoning models refuse.
_REFUSED_SETTINGS: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "stop")


def is_reasoning(parts: RequestParts) -> bool:
    """Return whether the catalogue or the name shows that a model is a reasoning model."""
    return parts.facts.reasons or _REASONING.match(parts.endpoint.name) is not None


def refuses_tools(endpoint: Endpoint) -> bool:
    """Return True if a model at OpenAI refuses tools in chat completions."""
    at_openai = (endpoint.base_url or "").rstrip("/") == OPENAI_URL
    is_chat = endpoint.dialect == "openai" and at_openai
    return is_chat and _REFUSES_TOOLS.match(endpoint.name) is not None


class ChatCompletions:
    """OpenAI's chat completions. Implements :class:`delf_model_http.dialect.Dialect`."""

    finish_reasons: ClassVar[Mapping[str, str]] = {}

    def address(self, endpoint: Endpoint, *, stream: bool) -> str:
        """Return the URL for requests."""
        return joined(endpoint.base_url or OPENAI_URL, "chat/completions")

    def headers(self, endpoint: Endpoint) -> dict[str, str]:
        """Return the headers with the key."""
        return {"Authorization": f"Bearer {endpoint.api_key}"}

    def body(self, parts: RequestParts) -> dict[str, Any]:
        """Return the JSON body of a request."""
        request = parts.request
        endpoint = parts.endpoint
        settings = dict(parts.settings)
        is_reasoning_model = is_reasoning(parts)
        if is_reasoning_model:
            settings = {
                name: value for name, value in settings.items() if name not in _REFUSED_SETTINGS
            }
        if is_reasoning_model or endpoint.is_official:
            # OpenAI itself has no top_k, and has renamed max_tokens.
            settings.pop("top_k", None)
            if "max_tokens" in settings:
                settings["max_completion_tokens"] = settings.pop("max_tokens")
        # This setting is delf's own, so it is not sent to the API.
        system_role = settings.pop(chat.SYSTEM_ROLE, None)
        result: dict[str, Any] = {
            "model": endpoint.name,
            "messages": chat.messages(request.messages, endpoint, system_role=system_role),
            **settings,
            **chat.tools(request.tools, must_call=request.must_call),
        }
        if parts.search is not None:
            result |= searches.of_openai()
        if parts.stream:
            result |= {"stream": True, "stream_options": {"include_usage": True}}
        return result

    def max_tokens(self, facts: Facts) -> int | None:
        """Return None, because the API does not require a maximum."""
        return None

    def parse(self, data: Any) -> Answer:
        """Parse a complete answer that was not streamed."""
        _check(data)
        answer = Answer(tokens=_tokens(data), has_model_finished=True)
        answer.set_reply_id(fields(data).get("id"))
        choices = items(required(data, "choices"))
        choice = choices[0] if choices else None
        _check_choice(choice)
        message = required(choice, "message")
        answer.add_text(_text_of(message))
        answer.add_reasoning(_reasoning_of(message))
        answer.collect_fields_to_send_back(fields(message), _SENT_BACK_FIELDS)
        for call in _calls_in(message):
            function = required(call, "function")
            answer.add_call(
                fields(call).get("id"),
                required(function, "name"),
                _arguments(function),
                fields_to_send_back=_fields_to_send_back(call),
            )
        answer.finish_reason = fields(choice).get("finish_reason")
        return answer

    def event(self, data: Any, answer: Answer) -> list[ModelDelta]:
        """Add an event to an answer; return the deltas to emit."""
        _check(data)
        answer.tokens = _tokens(data) or answer.tokens
        answer.set_reply_id(fields(data).get("id"))
        pieces: list[ModelDelta] = []
        for choice in items(fields(data).get("choices"))[:1]:
            _check_choice(choice)
            # Some servers that do not stream send the whole message as their one event.
            delta = fields(fields(choice).get("delta")) or fields(fields(choice).get("message"))
            pieces += answer.add_text(_text_of(delta))
            answer.add_reasoning(_reasoning_of(delta))
            answer.collect_fields_to_send_back(delta, _SENT_BACK_FIELDS)
            for call in _calls_in(delta):
                pieces += _add_call_piece(fields(call), answer)
            if reason := fields(choice).get("finish_reason"):
                answer.finish_reason, answer.has_model_finished = reason, True
        return pieces


def _add_call_piece(call: Mapping[str, Any], answer: Answer) -> list[ModelDelta]:
    """Add a streamed piece of a call; return the deltas to emit."""
    function = fields(call.get("function"))
    arguments = _arguments(function)
    name = function.get("name")
    index = _index_of_piece(call, name, answer)
    if index > answer.last_call_index:
        return answer.add_call(
            call.get("id"), name or "", arguments, fields_to_send_back=_fields_to_send_back(call)
        )
    answer.name_call(index, name)
    return answer.add_arguments(index, arguments)


def _index_of_piece(call: Mapping[str, Any], name: Any, answer: Answer) -> int:
    """Return the index of the call to which a piece belongs; for a new call, the next index.

    Most servers number the calls. Other servers send no number, or 0 for all calls: then a new id
    begins a new call, and so does a name after a complete call. Without any call, return -1.
    """
    index = _indicated_index(call, name, answer)
    next_index = answer.last_call_index + 1
    reuses_index = bool(name) and answer.is_new_call(index, call.get("id"))
    if index == next_index or reuses_index:
        return next_index
    # A complete call gets no more pieces. A piece with the call's index then belongs to the latest
    # call.
    is_complete = index >= 0 and answer.is_emitted(index)
    return answer.last_call_index if is_complete else index


def _indicated_index(call: Mapping[str, Any], name: Any, answer: Answer) -> int:
    """Return the index in ``answer`` of a piece's call, by the index or id in the piece."""
    server_index = call.get("index")
    if isinstance(server_index, int):
        return answer.index_of(server_index)
    call_id = call.get("id")
    has_new_id = bool(call_id) and not answer.is_last(call_id)
    is_first_call = bool(name) and not answer.has_calls
    if has_new_id or is_first_call:
        return answer.last_call_index + 1
    return answer.last_call_index


def _calls_in(message: Any) -> list[Any]:
    """Return the calls of a message, also in the old format with a single ``function_call``."""
    calls = items(fields(message).get("tool_calls"))
    single_call = fields(fields(message).get("function_call"))
    if single_call and not calls:
        return [{"function": single_call}]
    return calls


def _fields_to_send_back(call: Any) -> dict[str, Any]:
    """Return the fields to send back to the server with a call, such as Gemini's signature."""
    extra = fields(call).get("extra_content")
    return {"extra_content": extra} if fields(extra) else {}


def _arguments(function: Any) -> Any:
    """Return the arguments of a call; convert an object, which some servers send, to JSON text."""
    arguments = fields(function).get("arguments")
    if isinstance(arguments, dict):
        return json.dumps(arguments, ensure_ascii=False)
    return arguments or ""


def _check(reply: Any) -> None:
    """Raise ReportedError if a response with status 200, or an event, reports a failure."""
    # Some servers send an error as a list with one object.
    error_object = fields(reply[0] if items(reply) else reply)
    error = error_object.get("error") or _error_without_wrapper(error_object)
    if error:
        code = integer_field(error, "code")
        raise ReportedError(code if 400 <= code < 600 else 500, error_object)


def _error_without_wrapper(reply: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a reply if it is an error without the key ``error``, as from vLLM; otherwise None.

    The message of such an error is a text, or a list of problems. With any other message, the reply
    is an error only if its type says so.
    """
    message = next((reply[name] for name in _ERROR_FIELDS if reply.get(name)), None)
    if "choices" in reply or not message:
        return None
    has_error_type = "error" in (reply.get("object"), reply.get("type"))
    if has_error_type or isinstance(message, (str, list)):
        return reply
    return None


def _check_choice(choice: Any) -> None:
    """Raise ReportedError for a failure in a choice, in its delta or in its finish reason."""
    choice_fields = fields(choice)
    _check(choice_fields)
    delta_error = fields(choice_fields.get("delta")).get("error")
    _check({"error": delta_error})
    if choice_fields.get("finish_reason") == "error":
        error = choice_fields.get("message") or choice_fields.get("native_finish_reason")
        raise ReportedError(500, {"error": error})


def _reasoning_of(message: Any) -> str | None:
    """Return the model's reasoning in a message; empty or None if the message has none.

    Servers send the reasoning in fields of different names, or, as Mistral, in parts of the
    content.
    """
    message_fields = fields(message)
    reasoning = message_fields.get("reasoning_content") or message_fields.get("reasoning")
    if reasoning is None:
        reasoning = ""
        for part in items(message_fields.get("content")):
            # The value is a text, or a list of parts like the content of a message.
            thinking = _joined_parts(fields(part).get("thinking"))
            if isinstance(thinking, str):
                reasoning += thinking
    return reasoning if isinstance(reasoning, str) else None


def _text_of(message: Any) -> str | None:
    """Return the text or the refusal in a message; None without either."""
    return _joined_parts(fields(message).get("content")) or fields(message).get("refusal")


def _joined_parts(content: Any) -> Any:
    """Join the texts of content that is a list of parts; return other content unchanged."""
    if not isinstance(content, list):
        return content
    return "".join(str(fields(part).get("text") or "") for part in items(content))


def _tokens(piece: Any) -> Tokens | None:
    """Return the token counts in a piece of an answer; None if there are none."""
    used = fields(piece).get("usage")
    if not fields(used):
        return None
    details = fields(used).get("prompt_tokens_details")
    cached = integer_field(details, "cached_tokens")
    return Tokens(
        input=integer_field(used, "prompt_tokens"),
        cached=cached or integer_field(used, "prompt_cache_hit_tokens"),
        output=integer_field(used, "completion_tokens"),
        reasoning=integer_field(fields(used).get("completion_tokens_details"), "reasoning_tokens"),
    )
