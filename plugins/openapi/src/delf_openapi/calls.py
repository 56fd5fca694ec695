"""Makes the calls of an API's actions: checked, sent, answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from delf_openapi.answers import failure
from delf_openapi.compiler import Argument, Entry
from delf_openapi.operations import read_operation
from delf_openapi.requests import FULL, RequestBuilder
from delf_openapi.settings import OpenAPISettings

if TYPE_CHECKING:
    from delf_openapi.loading import API
    from delf_openapi.sampling import Samples
    from delf_openapi.transport import Transport

_SIGNATURE_CHARS: Final = 1500


class Caller:
    """What the calls of one connection have in common.

    Args:
        name: The connection's name.
        settings: Credentials, addresses and limits.
        keep_secret: Told of each token that is had.
    """

    def __init__(
        self, name: str, settings: OpenAPISettings, keep_secret: Callable[[str], None]
    ) -> None:
        self.name = name
        self._keep_secret = keep_secret
        self.samples: Samples | None = None
        self._settings = settings
        self._builders: dict[str, RequestBuilder] = {}
        self._transport: Transport | None = None

    def builder(self, call: Call) -> RequestBuilder:
        """What checks and builds the requests of an action, made on first use.

        Raises:
            SpecError: When the operation cannot be read.
        """
        name = call.entry.spot.name
        builder = self._builders.get(name)
        if builder is None:
            document = call.api.document
            builder = RequestBuilder(
                f"{self.name}.{name}",
                document,
                read_operation(document, call.entry.spot),
                self._settings,
                call.expected(),
                call.hidden,
            )
            self._builders[name] = builder
        return builder

    async def send(self, call: Call, given: dict[str, Any]) -> Any:
        """Make a call with checked arguments.

        Raises:
            APIError: When the API answers with an error.
            ConnectionUnavailableError: When it does not answer.
        """
        from delf_openapi.transport import Transport

        if self._transport is None:
            self._transport = Transport(self.name, self._settings, self._keep_secret)
        full = FULL not in call.names and bool(given.pop(FULL, False))
        builder = self.builder(call)
        request = builder.build(given)
        answer = await self._transport.send(request)
        if answer.status >= 400:
            raise failure(answer, request, call.api.document, builder.operation)
        if call.entry.undeclared and self.samples is not None and answer.content:
            self.samples.note(call.entry.spot.name, answer.body())
        return answer.whole() if full else answer.body()

    async def aclose(self) -> None:
        """Close all connections, and finish what is being written."""
        if self._transport is not None:
            await self._transport.aclose()
        if self.samples is not None:
            await self.samples.aclose()


class Call:
    """What an action does when it is called.

    Args:
        caller: Sends requests.
        api: The specification.
        entry: The action.
        hidden: Keywords whose values were given in code.
        shown: Keywords that scripts can give.
    """

    def __init__(
        self,
        caller: Caller,
        api: API,
        entry: Entry,
        hidden: frozenset[str],
        shown: Sequence[Argument],
    ) -> None:
        self.api = api
        self.entry = entry
        self.hidden = hidden
        self._caller = caller
        self._shown = shown

    @property
    def names(self) -> set[str]:
        """The keywords that scripts can give."""
        return {a.arg for a in self._shown}

    def expected(self) -> str:
        """The signature, for messages."""
        parts = [
            f"{a.arg}: {a.type}" + (f" = {a.default}" if a.default is not None else "")
            for a in self._shown
        ]
        text = f"{self._caller.name}.{self.entry.spot.name}({', '.join(parts)})"
        return text if len(text) <= _SIGNATURE_CHARS else f"{text[:_SIGNATURE_CHARS]}…"

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as they are sent.

        Raises:
            ToolRefusedError: When they do not fit.
        """
        return self._caller.builder(self).check(arguments)

    async def call(self, /, **given: Any) -> Any:
        """Make the call."""
        return await self._caller.send(self, given)

    def schema(self) -> dict[str, Any]:
        """The arguments as a JSON schema, with their types as text."""
        return {
            "type": "object",
            "properties": {
                a.arg: {"description": f"{a.type}{f'; {a.doc}' if a.doc else ''}"}
                for a in self._shown
            },
            "required": [a.arg for a in self._shown if a.default is None],
            "additionalProperties": False,
        }
