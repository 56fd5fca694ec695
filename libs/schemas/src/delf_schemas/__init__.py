"""JSON schemas in Python: actions, type texts and names."""

from delf_schemas.actions import action_from_schema

__all__ = ["action_from_schema"]
