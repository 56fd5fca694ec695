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
    """One model at one endpoint. Used by many tasks at once.

    Retries with back-off are the model's own business; what it raises is final.
    """

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The whole answer.

        Raises:
            EnvironmentKeyError: When the key is missing.
            LLMExecutionError: When the call failed for good.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """The answer in pieces as they come, then once as a whole, with its usage."""
        ...

    async def aclose(self) -> None:
        """Free connections. Safe to call twice."""
        ...


@runtime_checkable
class SupportsPrice(Protocol):
    """A model that knows its price before it is asked.

    A budget is kept with it: a model that has this method and no price is not asked under one.
    The cost of a model without this method is known from its replies only.
    """

    async def price(self) -> Price | None:
        """The price by the provider's list, or None where it is not in it. Asks nobody."""
        ...


@runtime_checkable
class SupportsTools(Protocol):
    """A model that can be given tools, and asks for calls of them."""

    @property
    def takes_tools(self) -> bool:
        """True if a request's ``tools`` reach it. Asks nobody."""
        ...


@runtime_checkable
class SupportsRecording(Protocol):
    """A factory of models that can also write down what another model answers."""

    def record(self, model: Model, path: str, clean: Callable[[str], str], /) -> Model:
        """The model, with every exchange added to a file that the factory's models replay.

        Args:
            model: The model that answers.
            path: The file.
            clean: Takes the secrets out of a text of an answer, before it is written there.
        """
        ...


class ModelSession(Protocol):
    """An open connection to a model that keeps what was said in it."""

    def send(self, request: ModelRequest) -> AsyncGenerator[ModelDelta | ModelReply]:
        """Say something new; the answer in pieces as they come, then once as a whole.

        Args:
            request: Its messages are those that were not said in this session before; the rules
                are among the first.

        Raises:
            DelfError: When the session is broken. The task goes on without it.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection. Safe to call twice."""
        ...


@runtime_checkable
class SupportsSessions(Protocol):
    """A model whose conversations can stay open, so that no turn sends it all again."""

    async def connect(self) -> ModelSession | None:
        """A new session; None for a model of this kind that has none.

        Raises:
            DelfError: When none is available now.
        """
        ...


@runtime_checkable
class SupportsModelWarmUp(Protocol):
    """A model that can prepare for its first request while the task looks for its context."""

    async def warm_up(self) -> None:
        """Prepare. What fails here is told by the request that needs it."""
        ...


@runtime_checkable
class SupportsModelCheck(Protocol):
    """A model that knows whether it could be asked."""

    async def check(self) -> None:
        """Look whether what it needs is there, such as its key. Asks nobody.

        Raises:
            DelfError: When it could not be asked, with what to do about it.
        """
        ...
