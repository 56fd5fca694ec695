"""Fixtures for the tests of the plugin llm."""

from support.model_fixtures import openai_server

__all__ = ["openai_server"]
