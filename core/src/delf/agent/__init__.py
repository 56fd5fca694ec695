"""The agent: what a program holds, from its lifecycle to its background tasks."""

from delf.agent.agent import Agent

__all__ = ["Agent"]
