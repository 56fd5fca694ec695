"""A language model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol, runtime_checkable

from delf.members import ProtocolMeta
from delf.messages import ModelDelta, ModelReply, ModelRequest, Price


class Model(Protocol):
    """A model at an endpoint, used by concurrent tasks.

    The model retries with back-off by itself; its errors are final.
    """

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the model's complete answer.

        Raises:
            EnvironmentKeyError: If the API key is missing.
            LLMExecutionError: If the call failed after retries.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Yield the answer in pieces as they arrive, then the complete reply with its usage."""
        ...

    async def aclose(self) -> None:
        """Free connections. Safe to call twice."""
        ...


@runtime_checkable
class SupportsPrice(Protocol, metaclass=ProtocolMeta):
    """A model whose price is known in advance, as a budget requires.

    With a budget, a model whose ``price`` returns None is not asked, unless the user has set
    ``allow_unpriced``. The cost of a model without this method is known only after each reply.
    """

    async def price(self) -> Price | None:
        """Return the price from the provider's list, without a request; None if unknown."""
        ...


@runtime_checkable
class SupportsTools(Protocol, metaclass=ProtocolMeta):
    """A model that supports tool calls."""

    @property
    def takes_tools(self) -> bool:
        """True if the model supports the ``tools`` of a request. No request is made to find out."""
        ...


@runtime_checkable
class SupportsRecording(Protocol, metaclass=ProtocolMeta):
    """A model factory that can also record the answers of another model."""

    def record(self, model: Model, path: str, clean: Callable[[str], str], /) -> Model:
        """Wrap a model so that each exchange is appended to a file for later replay.

        Args:
            model: The model that answers.
            path: The file.
            clean: Redacts secrets from a text before it is written to the file.
        """
        ...


class ModelSession(Protocol):
    """An open connection to a model that keeps the conversation."""

    def send(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Send new messages; yield the answer in pieces, then the complete reply.

        Args:
            request: A request with only the messages that are new in this session; the first
                request includes the system message.

        Raises:
            DelfError: If the session broke; the task continues with ordinary requests.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        ...


@runtime_checkable
class SupportsSessions(Protocol, metaclass=ProtocolMeta):
    """A model whose conversations can stay open, so that no turn sends the history again."""

    async def connect(self) -> ModelSession | None:
        """Open a session; return None if the model does not support sessions.

        Raises:
            DelfError: If no session is available at the moment.
        """
        ...
