"""``APITool``: a REST API whose actions are the operations of its specification."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from delf.llm import LLMConfig
from delf.network.urls import split_http_url
from delf.protocols.connection import SetupAsk
from delf.settings import SecretStr
from delf.tools.action import Action
from delf.tools.connection import Connection, describe_actions
from delf.tools.json_schema import clean
from delf.tools.signature import FullTypes, Parameter
from delf.tools.type_texts import with_types
from delf.types import Permission, Trust
from delf_openapi.cache import Cache, Learned
from delf_openapi.calls import CONTEXT, Call, Caller
from delf_openapi.compiler import Argument, Entry, apply_samples, compile_full
from delf_openapi.operations import locate_operation
from delf_openapi.requests import FULL_RESPONSE
from delf_openapi.security import asks_for_key, has_credentials, secured_names
from delf_openapi.selection import resolved_confirm
from delf_openapi.settings import OpenAPISettings
from delf_schemas.effects import Applied
from delf_schemas.names import shorten_description, snake
from delf_schemas.samples import Samples

if TYPE_CHECKING:
    from delf_openapi.effects import OperationEffects
    from delf_openapi.enrichment import Improvements
    from delf_openapi.loading import API

_MAX_DESCRIPTION: Final = 600
_MAX_NAMED: Final = 5
_MAX_CONTEXT: Final = 1_500
_GENERIC_WORDS: Final = frozenset(
    {"openapi", "swagger", "spec", "specification", "api", "json", "yaml", "yml", "latest"}
    | {"main", "index", "schema", "docs", "v1", "v2", "v3", "www", "com", "org", "net", "io"}
    | {"dev", "app", "co", "github", "raw", "localhost"}
)


class _Inspect:
    """Makes ``inspect`` a method of a connection, and of the class: ``APITool.inspect(spec)``."""

    def __get__(self, instance: APITool | None, owner: type[APITool]) -> Callable[..., Any]:
        """Return the function for ``connection.inspect()``, or for ``APITool.inspect(spec)``.

        The second function makes a connection, and describes the connection's actions.
        """
        if instance is not None:
            return instance.inspected

        def inspect(spec: Any = None, *, verbose: bool = False, **settings: Any) -> dict[str, Any]:
            """Return a description of a specification's actions as data; needs no credentials."""
            if spec is None and not settings:  # the class itself has no actions
                return describe_actions(owner.type_name(), owner.summary, (), verbose=verbose)
            return owner(spec, **settings).inspected(verbose=verbose)

        return inspect


class APITool(Connection[OpenAPISettings]):
    """A REST API: one action for each operation of its OpenAPI or Swagger specification.

    All settings are described in :class:`delf_openapi.settings.OpenAPISettings`.

    Args:
        spec: The specification: a file, a URL or a mapping.
        name: The connection's name in scripts; derived from the specification's address when
            omitted.
        allow: The operations that become actions: names, operationIds, tags or patterns such as
            ``GET /repos/*``. By default the first 100 operations; True for all.
        confirm: The operations that need approval, in the same notation.
        metadata: Data of the embedding program; delf does not read it.
        trust: ``own`` if only the user writes the service's data, else ``outside``; or a mapping
            from action to one of these.
        contents: A mapping from operation to the names of the parameters whose values are texts for
            people, such as the body of a comment.
        llm: The model that improves descriptions; the agent's light model when omitted.
        options: The fields of ``OpenAPISettings``; omitted fields come from the environment
            variables ``DELF_<NAME>_<FIELD>``.

    Raises:
        ConnectionConfigurationError: If a setting is invalid.
    """

    summary = "A REST API, from its OpenAPI specification."
    inspect: ClassVar[Any] = _Inspect()

    description_trust: ClassVar[Trust] = "outside"

    def __init__(
        self,
        spec: str | Path | Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        allow: Permission = None,
        confirm: Permission = None,
        metadata: Mapping[str, Any] | None = None,
        trust: Trust | Mapping[str, Trust] | None = None,
        contents: Mapping[str, Sequence[str]] | None = None,
        llm: str | LLMConfig | None = None,
        **options: Any,
    ) -> None:
        settings: dict[str, Any] = {**options}
        self._llm = llm
        # The content of the specification, if it was not given as a path or URL.
        self._tree = spec if isinstance(spec, Mapping) else None
        if spec is not None and self._tree is None:
            # Keep a text as it is: it may be a FileText, whose folder str() would lose.
            settings["spec"] = spec if isinstance(spec, str) else str(spec)
        for key in ("headers", "params", "path_params", "credentials"):
            if isinstance(settings.get(key), Mapping):
                settings[key] = _with_text_values(settings[key])
        super().__init__(
            name=name or _name_from(spec) or self.type_name(),
            allow=allow,
            confirm=confirm,
            metadata=metadata,
            trust=trust,
            contents=contents,
            **settings,
        )
        self._settings: OpenAPISettings = self.settings
        # The core knows only names of actions, not tags or patterns such as ``GET /repos/*``. So
        # _load_api() applies ``allow`` itself: only the selected operations become actions, and
        # the core's own ``allow`` is None, for all actions. In ``confirm``, _load_api() replaces
        # the selectors by names.
        self._allow_selectors: Permission = self.allow
        self._confirm_selectors: Permission = self.confirm
        self.allow = False if self._allow_selectors is False else None
        self._api: API | None = None
        self._operation_effects: OperationEffects | None = None  # None until the API is loaded
        self._server_notices: tuple[str, ...] = ()
        self._effect_notices: tuple[str, ...] = ()
        self._actions: tuple[Action, ...] | None = None
        self._load_lock = threading.Lock()
        self._caller = Caller(self.name, self._settings, self.keep_secret)
        # The descriptions that a model improved; None until they are read from the cache.
        self._improved: Improvements | None = None

    @classmethod
    def type_name(cls) -> str:
        """Return the name of this type of connection."""
        return "openapi"

    async def actions(self) -> Sequence[Action]:
        """Return the operations as actions; load the specification in a thread on the first call.

        Raises:
            ConnectionConfigurationError: If the specification is invalid.
            ConnectionUnavailableError: If the specification is unavailable.
        """
        if self._actions is None or self.is_stale():
            await asyncio.to_thread(self._ensure_loaded)
        return self._actions or ()

    async def context(self, task: str) -> str | None:
        """Return the specification's description of the whole API, such as units and paging."""
        api = await asyncio.to_thread(self._ensure_loaded)
        return shorten_description(api.info.get("description"), _MAX_CONTEXT) or None

    def is_stale(self) -> bool:
        """Return True if responses had types that are not yet in the actions' result types."""
        return self._caller.samples is not None and self._caller.samples.has_new_types

    async def aclose(self) -> None:
        """Close all connections. The next call opens new connections."""
        await self._caller.aclose()

    # -- loading ------------------------------------------------------------------------

    def _ensure_loaded(self) -> API:
        """Load the API and make its actions on the first call.

        The actions are made again after a response had a new type.
        """
        with self._load_lock:  # two tasks may start at once
            if self._api is None:
                self._api = self._load_api()
            if self._caller.samples is not None and self._caller.samples.has_new_types:
                apply_samples(self._api.entries.values(), self._caller.samples)
                self._actions = None
            if self._actions is None:
                self._actions = self._all_actions(self._api)
            return self._api

    def _load_api(self) -> API:
        """Load the specification; apply the settings and earlier result types to its actions.

        Raises:
            ConnectionConfigurationError: If the specification or a setting is invalid.
            ConnectionUnavailableError: If the specification is unavailable.
        """
        from delf_openapi.effects import OperationEffects
        from delf_openapi.loading import load_api

        api = load_api(self.name, self._settings, self._tree, self._allow_selectors)
        self._operation_effects = OperationEffects(self.name, self._settings, api)
        self._apply_effects(self._operation_effects)
        if self._settings.sample:
            # The shapes of responses in earlier processes, from the cache.
            cached_shapes = None if api.version is None else Learned(self._cache(), api.version)
            self._caller.samples = samples = Samples(cached_shapes)
            apply_samples(api.entries.values(), samples)
        self.confirm = resolved_confirm(
            self._confirm_selectors, api.endpoints, api.entries, self.name
        )
        self._note_refused_actions(api)
        self.summary = self._make_summary(api)
        return api

    def _apply_effects(self, effects: OperationEffects) -> None:
        """Set the actions' effects; store notices about actions that ``effects`` does not cover."""
        applied = effects.apply()
        self._effect_notices = (self._unknown_notice(applied),) if applied.unknown else ()

    def _unknown_notice(self, applied: Applied) -> str:
        """Return the notice that new and changed actions count as irreversible until accepted."""
        actions = _few([f"{self.name}.{action}" for action in applied.unknown])
        is_single = len(applied.unknown) == 1
        accept = f"delf openapi effects {self.name} --accept accepts the operations as they are now"
        if applied.record_problem is not None:
            count = "counts" if is_single else "count"
            return f"{applied.record_problem}, so {actions} {count} as irreversible; {accept}"
        they_count = "it counts" if is_single else "they count"
        return (
            f"the specification has added or changed {actions}, so {they_count} as irreversible; "
            f"{accept}"
        )

    def accept_operations(self) -> None:
        """Accept the operations of a specification from a URL as they are now.

        The setting ``effects`` then applies to them, also in later processes.
        """
        self._ensure_loaded()
        with self._load_lock:
            if self._operation_effects is not None:
                self._operation_effects.accept()
                self._apply_effects(self._operation_effects)
                self._actions = None

    def _note_refused_actions(self, api: API) -> None:
        """Set the notices about actions that cannot be called because of their servers.

        Raises:
            ConnectionConfigurationError: If all actions are refused, and a key would be sent to a
                server that the user has not accepted.
        """
        from delf_openapi.homes import UnacceptedServerError, refused_actions

        endpoints = [entry.endpoint for entry in api.entries.values()]
        refused = refused_actions(self.name, api.document, endpoints, self._settings)
        unaccepted = [each for each in refused.values() if isinstance(each, UnacceptedServerError)]
        if unaccepted and len(refused) == len(endpoints):
            raise unaccepted[0]
        names_by_message: dict[str, list[str]] = {}  # one notice for all actions of a server
        for action, error in refused.items():
            reason = error.message.removeprefix(f"{self.name}: ")
            text = f"{reason}; {error.hint}" if error.hint else reason
            names_by_message.setdefault(text, []).append(f"{self.name}.{action}")
        self._server_notices = tuple(
            f"calls of {_few(names)} are refused: {text}"
            for text, names in names_by_message.items()
        )

    def notices(self) -> Sequence[str]:
        """Return notices about effects, and about actions refused because of their server."""
        return (*self._server_notices, *self._effect_notices)

    def _all_actions(self, api: API) -> tuple[Action, ...]:
        if self._settings.enrich:
            from delf_openapi.enrichment import apply_summaries

            apply_summaries(api.entries.values(), self._improvements(api))
            # The model that improves summaries guesses result types; observed types override them.
            if self._caller.samples is not None:
                apply_samples(api.entries.values(), self._caller.samples)
        configured = self._configured_parameters(api)
        # The servers are a part of every action's version: an action with another server is another
        # action.
        servers = json.dumps(api.document.at("#").get("servers"), default=str)
        entries = api.entries.values()
        return tuple(self._action(api, entry, configured, servers) for entry in entries)

    # -- set-up -------------------------------------------------------------------------

    @property
    def needs_setup(self) -> bool:
        """True if, by the settings, a model improves the actions' descriptions before their use."""
        return self._settings.enrich

    async def setup(self, ask: SetupAsk) -> bool:
        """Improve descriptions and guess result types with a model, once per version.

        The improvements are cached on disk by the specification's digest.

        Args:
            ask: Asks the model; the caller counts the cost.

        Returns:
            Whether the model was asked.

        Raises:
            DelfError: If the model fails. Earlier improvements are kept and used.
        """
        from delf_openapi.enrichment import Enrichment

        api = await asyncio.to_thread(self._ensure_loaded)
        previous = self._improvements(api)
        unimproved = [e for e in api.entries.values() if e.endpoint.name not in previous]
        if not unimproved:
            return False

        def keep(improvements: Improvements) -> None:
            previous.update(improvements)  # the same dict as self._improved
            self._cache().write(f"{api.version}.summaries", previous)

        try:
            await Enrichment(ask, self._llm or self._settings.llm, keep).improve(unimproved)
        finally:
            self._actions = None  # also after a failure, because earlier batches are kept
        return True

    def _improvements(self, api: API) -> Improvements:
        """Return the descriptions that a model wrote for actions, in this or an earlier process.

        The dict is read from the cache once, and then extended by :meth:`setup`. Before the first
        set-up, the dict is empty.
        """
        if self._improved is None:
            cached = self._cache().read(f"{api.version}.summaries")
            self._improved = cast("Improvements", cached) if isinstance(cached, dict) else {}
        return self._improved

    def _cache(self) -> Cache:
        return Cache(self._settings.cache_dir)

    def _make_summary(self, api: API) -> str:
        """Return the description of the connection that the model reads."""
        title = clean(api.info.get("title"), 60) or "A REST API"
        text = f"{title}. Any call takes {FULL_RESPONSE}=True for status, headers and body"
        text += "; a ToolError has .status; results may lack any key: use .get"
        if api.left_out:
            text += f"; {len(api.entries)} of {len(api.entries) + api.left_out} operations"
        return f"{text}."

    def _configured_parameters(self, api: API) -> set[tuple[str, str]]:
        """Return the location and lower-case name of each parameter that the settings provide."""
        settings = self._settings
        configured = {("path", n.lower()) for n in settings.path_params}
        configured |= {("query", n.lower()) for n in settings.params}
        configured |= {("header", n.lower()) for n in settings.headers}
        return configured | secured_names(api.document, settings)

    def _accepted_arguments(
        self, entry: Entry, configured: set[tuple[str, str]]
    ) -> Sequence[Argument]:
        """Return the arguments that scripts can pass.

        Arguments whose values are in the settings are left out. If the settings have credentials,
        arguments for keys are left out, too, except those in the path.

        Args:
            entry: The compiled operation.
            configured: The place and the lower-case name of each parameter that the settings set.
        """
        has_key = has_credentials(self._settings)
        accepted: list[Argument] = []
        for argument in entry.arguments:
            if (argument.place, argument.name.lower()) in configured:
                continue
            may_be_key = has_key and argument.place != "path"  # every call needs the path
            if may_be_key and asks_for_key(argument.name, argument.doc):
                continue
            accepted.append(argument)
        return accepted

    def _action(
        self,
        api: API,
        entry: Entry,
        configured: set[tuple[str, str]],
        servers: str,
    ) -> Action:
        """Make the action of an operation.

        Args:
            api: The specification.
            entry: The compiled operation.
            configured: The place and the lower-case name of each parameter that the settings set.
            servers: The servers that the specification declares, which become part of the action's
                version.
        """
        accepted = self._accepted_arguments(entry, configured)
        hidden = frozenset(a.arg for a in entry.arguments) - {a.arg for a in accepted}
        # Headers that most operations have are accepted, but left out of the stub for the model.
        stub_arguments = [a for a in accepted if (a.place, a.name) not in api.common_headers]
        stub_names = {a.arg for a in stub_arguments}
        call = Call(self._caller, api, entry, hidden, accepted)
        return Action(
            name=entry.endpoint.name,
            permission=entry.endpoint.name,
            effect=entry.effect,
            summary=entry.summary,
            parameters=tuple(map(_parameter, stub_arguments)),
            returns=entry.returns,
            validate=call.validate,
            call=call.call,
            schema=call.schema,
            tags=entry.endpoint.tags,
            description=_description(api, entry),
            context=CONTEXT,
            full_types=functools.cache(lambda: self._full_types(api, entry, stub_names)),
            notes=entry.notes,
            version=f"{entry.endpoint.method} {entry.endpoint.path} {servers}",
        )

    def _full_types(self, api: API, entry: Entry, names: Collection[str]) -> FullTypes:
        """Return the full types of an action's result, and of the parameters in ``names``."""
        full_entry = compile_full(api.document, entry, api.full_shapes)
        returns = full_entry.returns
        if self._caller.samples is not None:
            observed_types = self._caller.samples.undeclared_types(entry.endpoint.name)
            returns = with_types(returns, observed_types)
        return FullTypes(
            parameters=tuple(_parameter(a) for a in full_entry.arguments if a.arg in names),
            returns=returns,
            notes=full_entry.result_notes,
        )

    def inspected(self, *, verbose: bool = False) -> dict[str, Any]:
        """Return a description of the actions as data.

        Args:
            verbose: Whether to describe each action completely, instead of naming the actions.

        Returns:
            The description; its ``left_out`` is the number of operations without an action.
        """
        api = self._ensure_loaded()
        description = describe_actions(
            self.name, self.summary, self._actions or (), verbose=verbose
        )
        if verbose:
            for item in description["methods"]:
                endpoint = api.entries[item["name"]].endpoint
                item["method"] = endpoint.method
                item["path"] = endpoint.path
                item["tags"] = list(endpoint.tags)
        title = clean(api.info.get("title"), 200)
        return {
            **description,
            "api": title,
            "left_out": api.left_out,
            "warnings": list(api.warnings),
        }


def _few(names: Sequence[str]) -> str:
    """Return the first names as text, with the number of the others: ``a, b and 3 more``."""
    text = ", ".join(names[:_MAX_NAMED])
    return text if len(names) <= _MAX_NAMED else f"{text} and {len(names) - _MAX_NAMED} more"


def _description(api: API, entry: Entry) -> str:
    """Return an operation's full description, for the search for actions."""
    operation = locate_operation(api.document, entry.endpoint)
    return clean(operation.raw.get("description"), _MAX_DESCRIPTION)


def _parameter(argument: Argument) -> Parameter:
    return Parameter(
        name=argument.arg,
        type_text=argument.type,
        default_text=argument.default,
        doc=argument.doc,
        notes=argument.notes,
    )


def _with_text_values(setting: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): _text_or_secret(value) for key, value in setting.items()}


def _text_or_secret(value: Any) -> Any:
    """Convert a value of the settings, such as a header's value that is a number, to text.

    Secrets stay secrets, and None stays None.
    """
    if isinstance(value, (str, SecretStr)) or value is None:
        return value
    return str(value)


def _name_from(spec: Any) -> str | None:
    """Derive a connection's name from a specification's address or title; None if that fails."""
    for candidate in _possible_names(spec):
        words = snake(candidate).split("_")
        name = "_".join(word for word in words if not _is_generic(word))
        if name.isidentifier():
            return name
    return None


def _possible_names(spec: Any) -> list[str]:
    """Return texts from which a connection's name can be made, the best first."""
    if spec is None:
        return []
    if isinstance(spec, Mapping):
        info: Any = cast("Mapping[str, Any]", spec).get("info")
        if not isinstance(info, Mapping):
            return []
        title: Any = cast("Mapping[str, Any]", info).get("title")
        return [] if title is None else [str(title)[:40]]
    address = str(spec)
    parts = split_http_url(address)
    if parts is not None and parts.hostname:
        return [_stem(parts.path), *parts.hostname.split(".")]
    return [_stem(address)]


def _stem(path: str) -> str:
    """Return the name of a file without its extensions."""
    return Path(path).name.partition(".")[0]


def _is_generic(word: str) -> bool:
    """Return True if a word, such as ``api`` or a version, does not tell one API from another."""
    return not word or word in _GENERIC_WORDS or re.fullmatch(r"v?\d+", word) is not None
