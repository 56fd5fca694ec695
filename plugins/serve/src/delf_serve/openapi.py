"""The OpenAPI 3.1 document, generated from the operations and their models."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NoReturn, cast, get_args

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, models_json_schema
from pydantic_core import PydanticOmit

from delf.events import (
    ApprovalAssigned,
    ApprovalCommented,
    ApprovalRequested,
    ApprovalVoted,
    Event,
)
from delf.types import TaskState
from delf_serve.operation import Operation
from delf_serve.problems import MEDIA
from delf_serve.schemas import Problem

_SCHEMA_REF: Final = "#/components/schemas/{model}"
# The JSON Schemas of the fields that all events have in common.
_COMMON_FIELDS: Final[dict[str, Any]] = {
    "task_id": {"type": "string"},
    "seq": {"type": "integer", "description": "Its number in the task, from 1."},
    "at": {"type": "number", "description": "Unix time in seconds."},
}
_PART: Final = re.compile(r"\{(\w+)\}")
_HEADERS: Final[dict[str, dict[str, Any]]] = {
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,15}$"},
    "Idempotency-Key": {"type": "string", "pattern": "^[!-~]{1,200}$"},
    "webhook-id": {"type": "string", "pattern": "^[!-~]{1,200}$"},
    "webhook-timestamp": {"type": "string", "pattern": "^[0-9]{1,15}$"},
    "webhook-signature": {"type": "string", "pattern": "^v1,[A-Za-z0-9+/=]{1,100}$"},
}
_FAILURES: Final = {
    400: "The request cannot be read.",
    401: "A key is needed.",
    403: "The caller has no right to this.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is of another type.",
    421: "The server does not have this host name.",
    422: "A parameter or a field of the body is invalid.",
    429: "There are too many requests.",
}
_FAILURES_OF_BODIES: Final = frozenset({408, 413, 415})
_MODEL_OF_STATUS: Final = {200: "TaskDetail"}


def document(operations: Iterable[Operation], *, server: str, keyed: bool) -> dict[str, Any]:
    """Generate the OpenAPI document.

    Args:
        operations: The operations to describe.
        server: The base URL.
        keyed: Whether an API key is required.
    """
    operations = tuple(operations)
    schemas = _schemas(operations)
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    content: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "delf",
            "version": "1",
            "summary": "Tasks in plain words, done by scripts, decided about by people.",
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    }
    if keyed:
        content["security"] = [{"bearer": []}, {"key": []}]
    return content


def _schemas(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the JSON Schemas of all bodies, answers and events, by name."""
    # The models without repetition, each as (model, mode); a dict keeps their order.
    models: dict[tuple[type[BaseModel], Any], None] = {(Problem, "serialization"): None}
    for operation in operations:
        if operation.body is not None:
            models[operation.body, "validation"] = None
        if operation.answer is not None:
            models[operation.answer, "serialization"] = None
    _, content = models_json_schema(list(models), ref_template=_SCHEMA_REF)
    return _simplify_nulls({**content["$defs"], **_event_schemas()})


def _simplify_nulls(node: Any) -> Any:
    """Simplify unions of one type and null to ``type: [T, "null"]`` in a JSON Schema.

    Code generators support the simpler form better.
    """
    if isinstance(node, list):
        return [_simplify_nulls(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = {name: _simplify_nulls(item) for name, item in cast("dict[str, Any]", node).items()}
    match fields.get("anyOf"):
        case [{"type": str() as kind, **rest}, {"type": "null"}]:
            del fields["anyOf"]
            if "const" in rest:  # a constant would exclude null
                rest["enum"] = [rest.pop("const")]
            if "enum" in rest:
                rest["enum"] = [*rest["enum"], None]
            return {"type": [kind, "null"], **rest, **fields}
        case _:
            return fields


class _EventSchemaGenerator(GenerateJsonSchema):
    """A schema generator that omits fields with callables, which the journal does not store."""

    def callable_schema(self, schema: Any) -> NoReturn:
        """Raise ``PydanticOmit``, so that pydantic leaves the field out of the schema."""
        raise PydanticOmit


_FACTS: Final[dict[str, Any]] = {
    "type": "array",
    "title": "Facts",
    "description": "All that a person has to know, worded, in order.",
    "items": {"$ref": _SCHEMA_REF.format(model="FactView")},
}


@cache
def _event_schemas() -> dict[str, Any]:
    """Return the JSON Schemas of events, of their data, and of the union ``Event``, by name."""
    schemas: dict[str, Any] = {}
    events: tuple[type[Event], ...] = get_args(Event)
    for event in events:
        data_schema = _data_schema(event)
        schemas |= data_schema.pop("$defs", {})
        schemas[data_schema["title"]] = data_schema
        schemas[event.__name__] = _envelope_schema(event.__name__, data_schema["title"])
    refs = {event.__name__: _SCHEMA_REF.format(model=event.__name__) for event in events}
    schemas["Event"] = {
        "title": "Event",
        "description": "What happened in a task.",
        "oneOf": [{"$ref": ref} for ref in refs.values()],
        "discriminator": {"propertyName": "type", "mapping": refs},
    }
    return schemas


def _data_schema(event: type[Event]) -> dict[str, Any]:
    """Return the JSON Schema of an event's fields, without the fields that all events have."""
    schema = TypeAdapter(event).json_schema(
        ref_template=_SCHEMA_REF, schema_generator=_EventSchemaGenerator
    )
    for name in _COMMON_FIELDS:
        del schema["properties"][name]
    schema["required"] = [name for name in schema.get("required", ()) if name not in _COMMON_FIELDS]
    # The stream replaces the facts of these events by pairs of a label and a text.
    if event is ApprovalRequested:
        schema["properties"]["facts"] = _FACTS
    elif event in (ApprovalVoted, ApprovalCommented, ApprovalAssigned):
        schema["properties"]["fact"] = _FACTS["items"]
    schema["title"] = f"{event.__name__}Data"
    return schema


def _envelope_schema(event_name: str, data_name: str) -> dict[str, Any]:
    """Return the JSON Schema of an event as the stream sends it."""
    return {
        "type": "object",
        "title": event_name,
        "required": ["type", "v", *_COMMON_FIELDS, "state", "data"],
        "properties": {
            "type": {"const": event_name, "type": "string"},
            "v": {"type": "integer"},
            **_COMMON_FIELDS,
            "headline": {"type": "string"},
            "rewrite_reason": {"type": "string"},
            "state": {"enum": list(TaskState), "type": "string"},
            "data": {"$ref": _SCHEMA_REF.format(model=data_name)},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    """Describe an operation in OpenAPI's format."""
    content: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": _parameters(operation),
        "responses": _responses(operation),
    }
    is_open_to_everybody = operation.right is None
    if is_open_to_everybody:
        content["security"] = []
    if operation.body is not None:
        schema: dict[str, Any] = {"$ref": _SCHEMA_REF.format(model=operation.body.__name__)}
        content["requestBody"] = {
            "required": True,
            "content": {operation.request_media: {"schema": schema}},
        }
    elif operation.request_media != "application/json":  # an upload, which may be empty
        content["requestBody"] = {
            "required": False,
            "content": {
                operation.request_media: {"schema": {"type": "string", "format": "binary"}}
            },
        }
    return content


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    """Describe an operation's path, query and header parameters in OpenAPI's format."""
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PART.findall(operation.path)
    ]
    query = operation.query.model_json_schema(ref_template=_SCHEMA_REF)
    for name, schema in query.get("properties", {}).items():
        plain = {key: value for key, value in schema.items() if key not in ("title", "description")}
        # An optional parameter is omitted, and never null.
        variants = [item for item in plain.get("anyOf", ()) if item != {"type": "null"}]
        if len(variants) == 1:
            plain = variants[0]
        is_required = name in query.get("required", ())
        parameter = {"name": name, "in": "query", "required": is_required, "schema": plain}
        if "description" in schema:
            parameter["description"] = schema["description"]
        parameters.append(parameter)
    headers = [
        {"name": name, "in": "header", "required": False, "schema": _HEADERS[name]}
        for name in operation.headers
    ]
    return parameters + headers


def _responses(operation: Operation) -> dict[str, Any]:
    """Describe an operation's responses in OpenAPI's format, the usual response first."""
    success: dict[str, Any] = {"description": operation.summary}
    if operation.status != 204:
        success["content"] = {operation.media: {"schema": _success_schema(operation)}}
        if operation.second_media is not None:
            success["content"][operation.second_media] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {str(operation.status): success}
    problem = {MEDIA: {"schema": {"$ref": _SCHEMA_REF.format(model="Problem")}}}
    has_body = operation.body is not None or operation.request_media != "application/json"
    failures = {
        status: text
        for status, text in _FAILURES.items()
        if has_body or status not in _FAILURES_OF_BODIES
    }
    for status, text in {**failures, **dict(operation.other_responses)}.items():
        if status == 204:
            responses["204"] = {"description": text}
        elif status < 300:
            schema = {"$ref": _SCHEMA_REF.format(model=_MODEL_OF_STATUS[status])}
            responses[str(status)] = {
                "description": text,
                "content": {"application/json": {"schema": schema}},
            }
        else:
            responses[str(status)] = {"description": text, "content": problem}
    return responses


def _success_schema(operation: Operation) -> dict[str, Any]:
    """Return the JSON Schema of an operation's usual response."""
    if operation.answer is not None:
        return {"$ref": _SCHEMA_REF.format(model=operation.answer.__name__)}
    if operation.frame_schema is not None:
        # Generated clients read the stream as text; ``contentSchema`` types its frames.
        return {
            "type": "string",
            "contentMediaType": operation.media,
            "contentSchema": {"$ref": _SCHEMA_REF.format(model=operation.frame_schema)},
        }
    return {"type": "object" if operation.media == "application/json" else "string"}
