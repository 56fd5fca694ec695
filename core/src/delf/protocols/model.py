"""A language model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import field
from typing import Protocol, runtime_checkable

from delf.messages import ModelDelta, ModelReply, ModelRequest, Price
from delf.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelContext:
    """The context of a model's factory, beside its configuration.

    Args:
        environ: Where keys are looked up: the process environment over ``.env``.
        providers: Keys given in code, by provider, as its plugin declares it.
        api_key_for: Keys by the address that they are for, as ``gateway.example:8080``.
    """

    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    providers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    api_key_for: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


class Model(Protocol):
    """One model at one endpoint, used by concurrent tasks.

    The model retries with back-off by itself; its errors are final.
    """

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Return the whole answer.

        Raises:
            EnvironmentKeyError: When the key is missing.
            LLMExecutionError: When the call failed for good.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Return the answer in pieces as they come, then once as a whole, with its usage."""
        ...

    async def aclose(self) -> None:
        """Free connections. Safe to call twice."""
        ...


@runtime_checkable
class SupportsPrice(Protocol):
    """A model that knows its price in advance, as a budget requires.

    A model that has this method and no price is not asked under a budget. The cost of a model
    without this method is known from its replies only.
    """

    async def price(self) -> Price | None:
        """Return the price of the provider's list, or None, without a request."""
        ...


@runtime_checkable
class SupportsTools(Protocol):
    """A model that can be given tools, and asks for calls of them."""

    @property
    def takes_tools(self) -> bool:
        """True if the model receives a request's ``tools``. Makes no request."""
        ...


@runtime_checkable
class SupportsRecording(Protocol):
    """A factory of models that can also record another model's answers."""

    def record(self, model: Model, path: str, clean: Callable[[str], str], /) -> Model:
        """Return the model, with every exchange added to a file that the factory's models replay.

        Args:
            model: The model that answers.
            path: The file.
            clean: Takes the secrets out of a text of an answer, before it is written there.
        """
        ...


class ModelSession(Protocol):
    """An open connection to a model that keeps the conversation."""

    def send(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Say something new; the answer in pieces as they come, then once as a whole.

        Args:
            request: A request with only the new messages of this session; the system message is
                among the first ones.

        Raises:
            DelfError: When the session is broken. The task goes on without it.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        ...


@runtime_checkable
class SupportsSessions(Protocol):
    """A model whose conversations can stay open, so that no turn sends the history again."""

    async def connect(self) -> ModelSession | None:
        """Return a new session; None for a model of this kind that has none.

        Raises:
            DelfError: When none is available now.
        """
        ...


@runtime_checkable
class SupportsModelWarmUp(Protocol):
    """A model that can prepare for its first request while the task looks for its context."""

    async def warm_up(self) -> None:
        """Prepare the model. A failure is reported by the request that needs it."""
        ...


@runtime_checkable
class SupportsModelCheck(Protocol):
    """A model that can report whether it is usable."""

    async def check(self) -> None:
        """Check the requirements, such as a key, without a request.

        Raises:
            DelfError: When it could not be asked, with what to do about it.
        """
        ...
