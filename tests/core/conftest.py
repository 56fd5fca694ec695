"""Fixtures for the core's tests."""

from support.model_fixtures import openai_server

__all__ = ["openai_server"]
