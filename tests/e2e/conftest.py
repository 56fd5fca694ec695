"""Real databases and a real model server for whole journeys."""

from support.fixtures import *  # noqa: F403 - databases
from support.model_fixtures import openai_server as openai_server
