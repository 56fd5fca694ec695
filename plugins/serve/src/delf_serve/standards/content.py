"""Content of messages, as the clients of all standards write it: texts, images and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from delf_serve.problems import ProblemError
from delf_serve.standards.turns import Turn


def add_message(turn: Turn, role: str, content: object, *, is_last: bool) -> None:
    """Add a message to a turn. Files are attached only from the last message.

    Args:
        turn: The turn.
        role: The author of the message.
        content: A text, or a list of parts.
        is_last: Whether the message is the last of the request.

    Raises:
        ProblemError: If the content is neither text nor a list, or a part of the last message is
            not supported.
    """
    if content is None or isinstance(content, str):
        turn.add_message(role, content or "")
        return
    if not isinstance(content, list):
        raise ProblemError(422, "the content of a message is a text or a list of parts")
    parts = cast("list[object]", content)
    turn.add_message(role, text_of(parts))
    if not is_last:
        return
    for part in parts:
        if _text(part) is None:
            _attach(turn, as_object(part))


class ForcedFunction(NamedTuple):
    """A function of the client that the answer must call.

    Args:
        name: The name of the function.
        schema: The JSON Schema of the arguments.
    """

    name: str
    schema: dict[str, Any]


def forced_function(
    tools: Sequence[Mapping[str, Any]], choice: object, *, ignored_name: str = ""
) -> ForcedFunction | None:
    """Return the client's function that the answer must call; None if no call is forced.

    Clients force a function call to get structured data: its arguments are the answer.

    Args:
        tools: The client's functions, as chat completions or responses describe them.
        choice: The client's ``tool_choice``.
        ignored_name: The name of a function that is not for the answer, such as a function for
            decisions about approval requests.

    Raises:
        ProblemError: If the forced function is not described, or ``choice`` allows several.
    """
    functions = _functions_by_name(tools)
    functions.pop(ignored_name, None)
    names: list[object] = []
    if choice == "required":  # a call of any function
        names += functions
    else:
        chosen_name = _chosen_name(choice)
        if chosen_name not in (None, ignored_name):
            names.append(chosen_name)
    if not names:
        return None
    name = names[0]
    # The answer has the schema of one function, so the model cannot choose among several.
    if len(names) > 1 or not isinstance(name, str) or name not in functions:
        raise ProblemError(
            422,
            "tool_choice must name one described function; a choice among several is not supported",
            param="tool_choice",
        )
    schema: Any = functions[name].get("parameters") or {"type": "object"}
    if not isinstance(schema, dict):
        raise ProblemError(422, "the parameters of a function are a JSON Schema", param="tools")
    return ForcedFunction(name, cast("dict[str, Any]", schema))


def _functions_by_name(tools: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    functions: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        # Chat completions describe a function below the key ``function``; responses do not.
        described = as_object(tool.get("function")) or tool
        if described.get("name") is not None:
            functions[str(described["name"])] = described
    return functions


def _chosen_name(choice: object) -> object:
    """Return the name of the function in a ``tool_choice``; None for choices such as "auto"."""
    chosen = as_object(choice)
    return as_object(chosen.get("function")).get("name") or chosen.get("name")


def text_of(content: object) -> str:
    """Return the text parts of a message's content, without images and files."""
    if isinstance(content, list):
        texts = map(_text, cast("list[object]", content))
        return "\n".join(text for text in texts if text)
    return content if isinstance(content, str) else ""


def as_object(value: object) -> Mapping[str, Any]:
    """Return a value if it is a JSON object, else an empty mapping."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _text(part: Any) -> str | None:
    """Return the text of a message part; None for images, files and malformed parts."""
    match part:
        case str():
            return part
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return text
        case {"type": "refusal", "refusal": str(text)}:
            return text
        case _:
            return None


def _attach(turn: Turn, part: Mapping[str, Any]) -> None:
    """Attach the file of a message part, which may have any of the formats that clients send."""
    match part:
        case {"image_url": {"url": str(url)}} | {"image_url": str(url)} | {"file_url": str(url)}:
            turn.attach(url)
        case {"file": file} if as_object(file):
            _attach(turn, as_object(file))
        case {"file_id": str(file_id)} | {"source": {"type": "file", "value": str(file_id)}}:
            turn.files.append(file_id)
        case {"file_data": str(url), **more}:
            turn.attach(url, _name(more))
        case {"source": {"type": "data", "value": str(data), **source}, **more}:
            kind = str(source.get("mimeType", "")).partition(";")[0]
            turn.attach(f"data:{kind};base64,{data}", _name(as_object(more.get("metadata"))))
        case _:
            type_name = str(part.get("type"))[:40]
            raise ProblemError(422, f"a part of type {type_name!r} cannot be used")


def _name(part: Mapping[str, Any]) -> str | None:
    name = part.get("filename")
    if isinstance(name, str) and name:
        return name
    return None
