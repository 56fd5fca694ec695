"""A test's document with schemas that refer to each other by name."""

from typing import Any


class Document:
    """Schemas by name, in which a reference is a name."""

    def __init__(self, **schemas: Any) -> None:
        self.schemas = schemas

    def absolute(self, ref: str) -> str:
        return ref

    def resolve(self, node: Any) -> dict[str, Any]:
        while isinstance(node, dict) and "$ref" in node:
            rest = {key: value for key, value in node.items() if key != "$ref"}
            node = {**self.schemas[node["$ref"]], **rest}
        return node if isinstance(node, dict) else {}
