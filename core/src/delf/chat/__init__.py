"""Conversations: what was said before a task, in full or as a summary."""

from delf.chat.chat import Chat
from delf.protocols.conversation import ChatMessage

__all__ = ["Chat", "ChatMessage"]
