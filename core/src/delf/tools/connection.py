"""``Connection``: the base class of everything that brings actions to a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, cast, get_args, get_origin
from weakref import WeakSet

from delf.errors import ConnectionConfigurationError, ToolDefinitionError
from delf.tools.action import Action, actions_of, check_flow
from delf.tools.permissions import (
    check_groups,
    check_permission,
    check_permission_names,
    is_allowed,
)
from delf.tools.signature import check_name
from delf.types import Permission, Trust

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from delf.protocols.connection import SecretsKeeper
    from delf.settings import PluginSettings

    S = TypeVar("S", bound=PluginSettings, default=Any)
else:  # only type checkers use bound and default
    from typing import TypeVar

    S = TypeVar("S")

_MAX_SECRETS: Final = 32
# Names that actions may not have, because delf itself calls these methods of a connection.
_RESERVED_METHODS: Final = frozenset(
    {"actions", "aclose", "check", "context", "inspect", "is_stale", "keep_secret", "setup"}
    | {"tell_secrets", "type_name", "use_context"}
)


class _Inspect:
    """A descriptor for ``inspect``, which can be called on the class and on instances."""

    def __get__(
        self, instance: Connection | None, owner: type[Connection]
    ) -> Callable[..., dict[str, Any]]:
        def inspect(*, verbose: bool = False) -> dict[str, Any]:
            """Return the callable actions as data.

            Only names by default; with ``verbose`` also descriptions and parameters.
            """
            if instance is None:  # called on the class
                name, allow = owner.type_name(), None
            else:
                name, allow = instance.name, instance.allow
            actions = [a for a in actions_of(owner, instance, name) if is_allowed(allow, a)]
            return describe_actions(
                name, owner.summary or _first_line(owner), actions, verbose=verbose
            )

        return inspect


def describe_actions(
    name: str, summary: str, actions: Sequence[Action], *, verbose: bool = False
) -> dict[str, Any]:
    """Return the data of ``inspect``: ``tool``, ``description``, ``methods`` and ``total``."""
    methods: list[Any] = [
        action.describe(verbose=True) if verbose else action.name for action in actions
    ]
    return {"tool": name, "description": summary, "methods": methods, "total": len(actions)}


class _KeptSecrets:
    """The secrets that a connection has passed to ``keep_secret``, and the redactors to notify.

    A copy of the connection has the secrets, but no redactors.
    """

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = secrets
        self._redactors: WeakSet[SecretsKeeper] = WeakSet()
        self._lock = Lock()

    def add(self, source: str, secret: str) -> None:
        """Add a secret, dropping the oldest of too many, and pass all secrets to the redactors.

        Args:
            source: The name of the connection.
            secret: The secret.
        """
        with self._lock:
            other_secrets = [other for other in self._secrets if other != secret]
            oldest_first = (*other_secrets, secret)
            self._secrets = oldest_first[-_MAX_SECRETS:]
            for redactor in list(self._redactors):
                redactor.learn(source, self._secrets)

    def add_redactor(self, source: str, redactor: SecretsKeeper) -> None:
        """Pass all secrets to a redactor, now and each time that a secret is added.

        Args:
            source: The name of the connection.
            redactor: The redactor, which is kept by a weak reference.
        """
        with self._lock:
            self._redactors.add(redactor)
            redactor.learn(source, self._secrets)

    def __reduce__(self) -> tuple[type[_KeptSecrets], tuple[tuple[str, ...]]]:
        return _KeptSecrets, (self._secrets,)


class Connection(Generic[S]):
    """A service with actions that a script can call.

    Subclass ``Connection[DeskSettings]``, or ``Connection`` if there are no settings, and mark
    methods with :func:`delf.tools.action.action`. Credentials stay in the instance, on the host;
    the script gets results only. A subclass may add ``async def context(self, task)`` for live
    facts in the prompt and ``async def aclose(self)`` to free what it holds.

    Args:
        name: The variable's name in scripts; the type's name when omitted.
        allow: The available actions: True or None (all), False, a name or names.
        confirm: The actions that need approval: None (all but ``read``), True, False, a name or
            names.
        metadata: Data of the embedding program; delf does not read it.
        trust: The trust in all results, which overrides the trust that actions declare: ``own``,
            ``outside``, or a mapping from the name of a result's field to trust, where ``*`` stands
            for all other fields. If the subclass defines a method ``result_trust``, that method
            interprets the keys of the mapping.
        contents: For each action, by name, the parameters whose values are only text for people to
            read. Needed for services whose actions do not declare such parameters.
        positional_settings: The settings as one object, ``Desk(DeskSettings(url=…))``; or the
            first setting without its name, ``Desk(url)``.
        settings: The settings by name. Omitted settings are read from ``DELF_<NAME>_<FIELD>``.

    Raises:
        ConnectionConfigurationError: If a setting is missing, unknown or invalid.
        AgentConfirmationError: If ``confirm`` is invalid.
    """

    Settings: ClassVar[type[PluginSettings] | None] = None
    """The class of the settings, taken from ``Connection[…]``."""
    settings: S
    summary: str = ""
    is_function: bool = False
    inspect: ClassVar[_Inspect] = _Inspect()
    context_trust: Trust = "outside"
    """``own`` if the text of ``context()`` is the user's own, ``outside`` if it is untrusted."""
    description_trust: ClassVar[Trust] = "own"
    """``own`` if the program describes the actions, ``outside`` if a server does."""

    def __init__(
        self,
        *positional_settings: Any,
        name: str | None = None,
        allow: Permission = None,
        confirm: Permission = None,
        metadata: Mapping[str, Any] | None = None,
        trust: Trust | Mapping[str, Trust] | None = None,
        contents: Mapping[str, Sequence[str]] | None = None,
        **settings: Any,
    ) -> None:
        self.name = check_name(name or self.type_name(), "the connection name")
        self.allow = check_permission(allow, "allow", self.name)
        self.confirm = check_permission(confirm, "confirm", self.name)
        self.metadata = dict(metadata or {})
        self.trust = _checked_trust(trust, self.name)
        # For each action, the parameters that are only text for people to read.
        self.contents = _checked_contents(contents, self.name)
        self.summary = type(self).summary or _first_line(type(self))
        self.settings = self._make_settings(positional_settings, settings)
        # Python adds the class's name to an attribute with two underscores, so a subclass cannot
        # replace this attribute by accident.
        self.__kept_secrets = _KeptSecrets()
        self._check_actions()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "Settings" in vars(cls):
            raise ToolDefinitionError(
                f"{cls.__name__} sets the attribute Settings",
                hint=f"name the class of its settings as class {cls.__name__}(Connection[…])",
            )
        if (declared_class := _declared_settings(cls)) is not None:
            cls.Settings = declared_class

    def keep_secret(self, secret: str) -> None:
        """Redact a secret in all output of the agents that use this connection.

        Use this method for secrets that no setting holds, such as an access token from a service,
        and call it before the secret is used: earlier output cannot be redacted. Only a
        connection's last 32 secrets are redacted, because a service may renew its tokens any number
        of times. Thread-safe.

        Args:
            secret: The secret in plain text. Texts shorter than 6 characters are not redacted.
        """
        self.__kept_secrets.add(self.name, secret)

    def tell_secrets(self, keeper: SecretsKeeper) -> None:
        """Pass the connection's secrets to a redactor, and later secrets as they appear."""
        self.__kept_secrets.add_redactor(self.name, keeper)

    @classmethod
    def type_name(cls) -> str:
        """Return the name of this type of connection: the class's name in lower case."""
        return cls.__name__.lower()

    async def actions(self) -> Sequence[Action]:
        """Return all actions. Connections with dynamic actions override this method."""
        return actions_of(type(self), self, self.name)

    def _make_settings(self, positional: Sequence[Any], settings: Mapping[str, Any]) -> Any:
        """Make the settings object.

        Args:
            positional: A settings object or the value of the first setting; empty if neither was
                given by position.
            settings: The settings by name.
        """
        if self.Settings is None:
            self._refuse_all_settings(positional, settings)
            return None
        if not positional:
            return self.Settings.for_instance(self.name, settings)
        first, *others = positional
        first_setting = next(iter(self.Settings.model_fields))
        is_settings_object = isinstance(first, self.Settings)
        # A settings object sets all settings; any other value sets the first one.
        is_set_twice = bool(settings) if is_settings_object else first_setting in settings
        if others or is_set_twice:
            raise ConnectionConfigurationError(
                f"connection {self.name!r} takes one setting by position, {first_setting}, and "
                "only once",
                hint="give all other settings by name",
            )
        if is_settings_object:
            return first
        return self.Settings.for_instance(self.name, {**settings, first_setting: first})

    def _refuse_all_settings(self, positional: Sequence[Any], settings: Mapping[str, Any]) -> None:
        """Raise if there are settings, for a type of connection without settings."""
        if positional or settings:
            unknown = repr(min(settings)) if settings else "without a name"
            raise ConnectionConfigurationError(
                f"connection {self.name!r} has no setting {unknown}",
                hint="this type of connection takes name, allow and confirm only",
            )

    def _check_actions(self) -> None:
        """Raise for invalid names and permissions of actions that the class defines."""
        has_dynamic_actions = type(self).actions is not Connection.actions
        if has_dynamic_actions:  # the actions are not known yet
            return
        actions = actions_of(type(self), None, self.name)
        if not actions:
            raise ToolDefinitionError(
                f"connection {self.name!r}: {type(self).__name__} has no action",
                hint="mark the methods that scripts may call with @action",
            )
        reserved = next((item.name for item in actions if item.name in _RESERVED_METHODS), None)
        if reserved is not None:
            raise ToolDefinitionError(
                f"connection {self.name!r}: an action cannot be named {reserved!r}: delf itself "
                "calls the connection's method of that name",
                hint="give the method another name",
            )
        check_groups(actions, self.name)
        check_permission_names(self.allow, "allow", self.name, actions)
        check_permission_names(self.confirm, "confirm", self.name, actions)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def _declared_settings(cls: type[Connection[Any]]) -> type[PluginSettings] | None:
    """Return the settings class that a class names in its base ``Connection[…]``, if any."""
    arguments: list[Any] = []
    for base in vars(cls).get("__orig_bases__", ()):
        if _is_connection(base):
            arguments += get_args(base)
    if not arguments or isinstance(arguments[0], TypeVar):  # subclasses give a TypeVar's value
        return None
    from delf.settings import PluginSettings

    settings = arguments[0]
    if isinstance(settings, type) and issubclass(settings, PluginSettings):
        return settings
    raise ToolDefinitionError(
        f"{cls.__name__} has the settings {settings!r}",
        hint="give a subclass of delf.settings.PluginSettings that is defined above the class",
    )


def _is_connection(base: Any) -> bool:
    origin = get_origin(base)
    return isinstance(origin, type) and issubclass(origin, Connection)


def _checked_trust(trust: Any, name: str) -> Trust | Mapping[str, Trust] | None:
    if trust is None:
        return None
    try:
        return check_flow(f"connection {name!r}", trust)["trust"]
    except (ToolDefinitionError, TypeError, AttributeError) as error:
        # A TypeError or AttributeError means that the value is neither a text nor a table of texts.
        message = error.message if isinstance(error, ToolDefinitionError) else f"trust is {trust!r}"
        raise ConnectionConfigurationError(
            message, hint='"own", "outside", or one of these for each field: {"id": "own"}'
        ) from None


def _checked_contents(contents: Any, name: str) -> Mapping[str, tuple[str, ...]]:
    """Check ``contents``, such as ``{"send": ["text"]}``; return ``{"send": ("text",)}``.

    Raises:
        ConnectionConfigurationError: If the value is not such a mapping.
    """
    if contents is None:
        return {}
    if not _is_table_of_lists(contents):
        raise ConnectionConfigurationError(
            f"connection {name!r}: contents is {contents!r}",
            hint='lists of parameters by action: {"send": ["text"]}',
        )
    return {str(action): tuple(map(str, names)) for action, names in contents.items()}


def _is_table_of_lists(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    table = cast("Mapping[Any, Any]", value)
    return all(isinstance(item, (list, tuple)) for item in table.values())


def _first_line(cls: type) -> str:
    for line in (cls.__doc__ or "").splitlines():
        if line.strip():
            return line.strip()
    return ""
