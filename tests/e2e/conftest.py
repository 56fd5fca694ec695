"""Real databases and a real model server for whole journeys."""

from support.fixtures import *  # noqa: F403
from support.model_fixtures import openai_server

__all__ = ["openai_server"]
