"""Standards of other systems that a server speaks: OpenAI's API, AG-UI and A2A."""

from __future__ import annotations

from typing import Final

from delf_serve.operation import Operation
from delf_serve.standards.a2a import A2A
from delf_serve.standards.ag_ui import AG_UI
from delf_serve.standards.openai_chat import CHAT
from delf_serve.standards.openai_responses import RESPONSES

STANDARDS: Final[tuple[Operation, ...]] = (*CHAT, *RESPONSES, *AG_UI, *A2A)
"""The operations of all supported standards, which the OpenAPI document omits."""
