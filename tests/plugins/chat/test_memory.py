"""Conversations in memory keep the contract of all stores."""

import pytest

from delf.testing import ConversationContract
from delf_chat.memory import MemoryConversations


class TestMemoryConversations(ConversationContract):
    drops_summarised_messages = True

    @pytest.fixture
    def conversations(self):
        return MemoryConversations()
