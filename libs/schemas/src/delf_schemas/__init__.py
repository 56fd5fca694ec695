"""JSON schemas as Python: actions made from them, types as text, names."""

from delf_schemas.actions import action_from_schema

__all__ = ["action_from_schema"]
