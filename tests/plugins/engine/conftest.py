"""Fixtures for the engine's tests."""

from support.model_fixtures import openai_server

__all__ = ["openai_server"]
