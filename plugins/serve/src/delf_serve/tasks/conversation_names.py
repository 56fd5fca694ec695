"""Names of conversations: as the journal stores them, and as their user sees them."""

from __future__ import annotations

from typing import Final

from delf.protocols.conversation import USER_SEPARATOR, conversation_of
from delf_serve.keys import Caller

CLIENT_CONVERSATION_PREFIX: Final = "client-turn:"
"""The prefix of names of conversations that the client keeps and sends with each request."""


def stored_name(conversation: str | None, caller: Caller) -> str | None:
    """Return the name under which the journal stores a caller's conversation: ``USER|NAME``.

    Without a user, as on a server without keys, the stored name is the given name. Return None if
    no conversation is given.
    """
    if conversation is None:
        return None
    return conversation_of(caller.user, conversation)


def shown_name(conversation: str, caller: Caller) -> str:
    """Return a conversation's name without the prefix of its user."""
    return conversation.removeprefix(f"{caller.user}{USER_SEPARATOR}")


def is_kept_by_client(conversation: str) -> bool:
    """Return True if a stored conversation is a copy of messages that the client keeps."""
    name_without_user = conversation.rpartition(USER_SEPARATOR)[2]
    return name_without_user.startswith(CLIENT_CONVERSATION_PREFIX)
