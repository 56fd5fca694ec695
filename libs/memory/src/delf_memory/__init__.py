"""Brings a memory store into the tasks of an agent."""

from delf_memory.memory import AgentMemory

__all__ = ["AgentMemory"]
