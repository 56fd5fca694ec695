"""Conversations in memory keep the contract of all stores."""

import pytest

from delf.chat.memory import MemoryConversations
from delf.testing import ConversationContract


class TestMemoryConversations(ConversationContract):
    forgets = True

    @pytest.fixture
    def conversations(self):
        return MemoryConversations()
