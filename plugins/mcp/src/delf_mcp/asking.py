"""What a server may ask while it works for a call: a person, the agent's model, its folders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Literal

import mcp_types as types
from mcp.client.session import ClientRequestContext

from delf import CallContext
from delf.errors import DelfError, ToolException, ToolRefusedError
from delf.messages import system
from delf_mcp.results import as_message

_SHOWN: Final = 500
_caller: ContextVar[CallContext | None] = ContextVar("delf_mcp_caller", default=None)

Sampling = Literal["ask", "allow", "refuse"]


class Asking:
    """Answers what a server asks, on behalf of the call that it works for.

    Args:
        sampling: Whether it may ask the agent's model.
        roots: Folders that it is told it may work in.
    """

    def __init__(self, sampling: Sampling, roots: Sequence[str]) -> None:
        self._sampling = sampling
        self._roots = roots
        self._calls: list[CallContext] = []

    @contextmanager
    def calling(self, context: CallContext) -> Generator[None]:
        """A call is under way; what the server asks meanwhile is for it."""
        self._calls.append(context)
        token = _caller.set(context)
        try:
            yield
        finally:
            _caller.reset(token)
            self._calls.remove(context)

    @property
    def callbacks(self) -> dict[str, Any]:
        """For the client; what is left out is not offered to the server."""
        found: dict[str, Any] = {"elicitation_callback": self.elicit}
        if self._sampling != "refuse":
            found["sampling_callback"] = self.sample
        if self._roots:
            found["list_roots_callback"] = self.list_roots
        return found

    async def elicit(
        self, _context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Ask a person, as an approval whose arguments are the form's fields."""
        caller = self._caller()
        if caller is None:
            return types.ElicitResult(action="cancel")
        if isinstance(params, types.ElicitRequestURLParams):
            question = f"{params.message}\nOpen {params.url}"
            agreed = await caller.consent(question, {"url": params.url}, name="elicitation")
            return types.ElicitResult(action="decline" if agreed is None else "accept")
        schema: Mapping[str, Any] = params.requested_schema
        fields: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
        fit = _form(schema)
        given = {name: field.get("default") for name, field in fields.items()}
        agreed = await caller.consent(params.message, given, name="elicitation", fit=fit)
        if agreed is None:
            return types.ElicitResult(action="decline")
        try:
            return types.ElicitResult(action="accept", content=fit(agreed))
        except ToolRefusedError:  # it was approved without what it needs
            return types.ElicitResult(action="cancel")

    async def sample(
        self, _context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        """Ask the agent's model, under its budget."""
        caller = self._caller()
        if caller is None:
            return _error("no call is under way that a model could be asked for")
        try:
            messages = [as_message(message) for message in params.messages]
            if self._sampling == "ask":
                last = messages[-1].text if messages else ""
                question = f"may the server ask the agent's model?\n{last[:_SHOWN]}"
                if await caller.consent(question, name="sampling") is None:
                    return _error("the user does not want the model to be asked")
            if params.system_prompt:
                messages.insert(0, system(params.system_prompt))
            reply = await caller.ask(messages, settings=_settings(params))
        except (DelfError, ToolException) as error:
            return _error(error.message)
        return types.CreateMessageResult(
            role="assistant",
            content=types.TextContent(type="text", text=reply.text),
            model=reply.model,
            stop_reason="maxTokens" if reply.broken_by == "length" else "endTurn",
        )

    async def list_roots(
        self, _context: ClientRequestContext
    ) -> types.ListRootsResult | types.ErrorData:
        """The folders that the settings name."""
        paths = await asyncio.to_thread(lambda: [Path(root).resolve() for root in self._roots])
        named = [{"uri": path.as_uri(), "name": path.name} for path in paths]
        return types.ListRootsResult(roots=[types.Root.model_validate(root) for root in named])

    def _caller(self) -> CallContext | None:
        """The call that the server works for; the last one that began, where it does not say."""
        own = _caller.get()
        if own is not None:
            return own
        return self._calls[-1] if self._calls else None


def _settings(params: types.CreateMessageRequestParams) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_tokens": params.max_tokens}
    if params.temperature is not None:
        settings["temperature"] = params.temperature
    if params.stop_sequences:
        settings["stop"] = params.stop_sequences
    return settings


def _form(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Checks what a person put into a form; None stands for what is left out."""
    import jsonschema_rs

    validator = jsonschema_rs.validator_for(dict(schema))

    def fit(arguments: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in arguments.items() if value is not None}
        for error in validator.iter_errors(given):
            place = ".".join(map(str, error.instance_path))
            raise ToolRefusedError(f"{place}: {error.message}" if place else error.message)
        return given

    return fit


def _error(message: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=message)
