"""Small specifications for tests."""

from __future__ import annotations

from typing import Any


def spec(paths: dict[str, Any], version: str = "3.0.3", **more: Any) -> dict[str, Any]:
    """A specification with some paths."""
    return {"openapi": version, "info": {"title": "Tests", "version": "1"}, "paths": paths, **more}


def one(
    operation: dict[str, Any], path: str = "/x", method: str = "get", **more: Any
) -> dict[str, Any]:
    """A specification with one operation, called ``call``."""
    full = {"operationId": "call", "responses": {"200": {"description": "ok"}}, **operation}
    return spec({path: {method: full}}, **more)


def with_login(service: str, method: str = "get") -> dict[str, Any]:
    """A specification whose operation wants a token, which a service gives at ``/token``."""
    flows = {"clientCredentials": {"tokenUrl": f"{service}/token", "scopes": {}}}
    schemes = {"login": {"type": "oauth2", "flows": flows}}
    operation = {"security": [{"login": []}]}
    return one(operation, method=method, components={"securitySchemes": schemes})


def param(name: str, place: str = "query", schema: Any = None, **more: Any) -> dict[str, Any]:
    """A parameter."""
    return {"name": name, "in": place, "schema": schema or {"type": "string"}, **more}


def body(
    schema: Any, media: str = "application/json", *, required: bool = True, **more: Any
) -> dict[str, Any]:
    """A request body."""
    return {"required": required, "content": {media: {"schema": schema, **more}}}


PETS = spec(
    {
        "/pets": {
            "get": {
                "operationId": "listPets",
                "tags": ["pets"],
                "summary": "List pets",
                "parameters": [
                    param("limit", schema={"type": "integer", "default": 20, "maximum": 100})
                ],
                "responses": {
                    "200": {
                        "description": "ok",
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "array",
                                    "items": {"$ref": "#/components/schemas/Pet"},
                                }
                            }
                        },
                    }
                },
            },
            "post": {
                "operationId": "createPet",
                "tags": ["pets"],
                "summary": "Add a pet",
                "requestBody": body({"$ref": "#/components/schemas/Pet"}),
                "responses": {
                    "201": {
                        "description": "made",
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}
                        },
                    },
                    "422": {
                        "description": "The pet is not acceptable",
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}
                        },
                    },
                },
            },
        },
        "/pets/{petId}": {
            "parameters": [param("petId", "path", {"type": "integer"}, required=True)],
            "get": {
                "operationId": "getPet",
                "tags": ["pets"],
                "summary": "One pet",
                "responses": {
                    "200": {
                        "description": "ok",
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}
                        },
                    }
                },
            },
            "delete": {
                "operationId": "deletePet",
                "tags": ["pets", "admin"],
                "summary": "Remove a pet",
                "responses": {"204": {"description": "gone"}},
            },
        },
        "/pets/{petId}/photo": {
            "parameters": [param("petId", "path", {"type": "integer"}, required=True)],
            "get": {
                "operationId": "getPhoto",
                "tags": ["photos"],
                "summary": "The photo",
                "responses": {
                    "200": {
                        "description": "ok",
                        "content": {
                            "image/png": {"schema": {"type": "string", "format": "binary"}}
                        },
                    }
                },
            },
        },
    },
    components={
        "schemas": {
            "Pet": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string", "minLength": 1},
                    "kind": {"type": "string", "enum": ["cat", "dog"]},
                    "parent": {"$ref": "#/components/schemas/Pet"},
                },
            },
            "Problem": {"type": "object", "properties": {"detail": {"type": "string"}}},
        },
        "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    },
    security=[{"key": []}],
)
