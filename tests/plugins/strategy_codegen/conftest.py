"""Fixtures for testing strategy-codegen."""

from support.model_fixtures import openai_server

__all__ = ["openai_server"]
