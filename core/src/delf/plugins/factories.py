"""Construction of the object behind a spec, with the options of its plugin."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Final

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from delf.environment import call_in_empty_context
from delf.errors import (
    ConfigurationError,
    DelfError,
    PluginError,
    describe_exception,
    did_you_mean,
    raise_because,
)
from delf.plugins.host import PluginHost
from delf.plugins.shapes import faults, protocol_of
from delf.protocols.context import PluginContext
from delf.settings import PluginSettings
from delf.specs import Spec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def make(
    host: PluginHost,
    spec: Spec,
    options: Mapping[str, Mapping[str, Any]],
    context: PluginContext,
    arguments_by_name: Mapping[str, Any] | None = None,
    /,
    **extras: Any,
) -> Any:
    """Make the object of a spec by calling its factory with keyword arguments.

    Args:
        host: The host of the spec.
        spec: The spec.
        options: Options by plugin name, from ``[plugins.NAME]``.
        context: The context, of which the factory gets a copy if it has a parameter ``context``.
            In the copy, ``installed_providers`` has the host's providers.
        arguments_by_name: Further values that are passed only to parameters of these names.
        extras: Further arguments, which override the options of the plugin.

    Raises:
        ConfigurationError: For an unknown or mistyped option, or if the made object does not
            satisfy the protocol of its kind.
        PluginError: If the factory cannot be imported, fails or returns None.
    """
    plugin = host.plugin_of(spec) or spec.name
    plugin_options = fitting_options(host, spec, options.get(plugin, {}))
    factory, signature = _factory(host, spec)
    context = replace(context, installed_providers=host.providers)
    offered_arguments = dict(arguments_by_name or {})
    offered_arguments["context"] = context
    accepted_arguments = {k: v for k, v in offered_arguments.items() if k in signature.parameters}
    arguments = {**plugin_options, **accepted_arguments, **extras}  # later ones override
    # Check the arguments before the call, because a TypeError of the call may come from inside the
    # factory.
    try:
        signature.bind(**arguments)
    except TypeError as error:
        offered_names = ", ".join(sorted(offered_arguments | extras))
        raise ConfigurationError(
            f"{_place(host, spec)}: {error}",
            hint=f"its factory {spec.factory} is called with {offered_names} and its options, "
            "as keywords",
        ) from None
    instance = _call_factory(host, spec, factory, arguments)
    check_protocol(spec.kind, instance, f"the {spec.kind} {spec.name!r}")
    return instance


def _call_factory(host: PluginHost, spec: Spec, factory: Any, arguments: Mapping[str, Any]) -> Any:
    """Call the factory of a spec, and return the object.

    Raises:
        PluginError: If the factory fails or returns None.
    """
    failure = f"the {spec.kind} {spec.name!r} of {host.origin(spec)} cannot be made"
    try:
        # Tasks share the object. In an empty context, an asyncio task that the object starts does
        # not see the ContextVars of the task for which the object is made.
        instance = call_in_empty_context(factory, **arguments)
    except DelfError:
        raise
    except (Exception, SystemExit) as error:
        plugin_error = PluginError(
            f"{failure}: {describe_exception(error)}", hint=f"its factory is {spec.factory}"
        )
        raise_because(plugin_error, error)
    if instance is None:
        raise PluginError(
            f"{failure}: {spec.factory} returned None",
            hint="its author has to return the object",
        )
    return instance


def _factory(host: PluginHost, spec: Spec) -> tuple[Any, inspect.Signature]:
    """Return the factory of a spec with its signature.

    Raises:
        PluginError: If the factory cannot be imported or called.
    """
    factory = host.resolve(spec)
    try:
        return factory, inspect.signature(factory)
    except (TypeError, ValueError) as error:  # such as a class of an extension in C
        raise PluginError(
            f"the {spec.kind} {spec.name!r} of {host.origin(spec)} cannot be made: {error}",
            hint=f"its factory {spec.factory} has to be a function or a class in Python",
        ) from error


def fitting_options(host: PluginHost, spec: Spec, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert options to the types that a factory declares.

    Args:
        host: The host of the spec.
        spec: The spec.
        options: The options.

    Raises:
        ConfigurationError: If the factory does not take an option, or a value does not fit its
            type.
        PluginError: If the factory cannot be imported.
    """
    factory, signature = _factory(host, spec)
    place = _place(host, spec)
    _check_names(signature, options, place)
    try:
        function = factory.__init__ if isinstance(factory, type) else factory
        hints = typing.get_type_hints(function, include_extras=True)
    except (AttributeError, NameError, TypeError):  # a name that only type checkers import
        hints = {}
    return {
        name: _converted(hints.get(name, Any), options[name], f"{place} {name}") for name in options
    }


def _check_names(signature: inspect.Signature, options: Mapping[str, Any], place: str) -> None:
    """Raise for an option that a factory does not take."""
    parameters = signature.parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    keywords = [parameter.name for parameter in parameters if parameter.kind in by_keyword]
    known_names = [name for name in keywords if name != "context"]  # delf itself gives the context
    for name in options:
        if name not in known_names:
            raise _unknown_setting(place, name, known_names)


def _unknown_setting(place: str, name: str, known_names: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(
        f"{place}: there is no setting {name!r}{did_you_mean(name, known_names)}",
        hint=f"its settings: {', '.join(known_names)}" if known_names else None,
    )


# The kinds whose factories do not get the options of ``[plugins.NAME]``: the options of a
# connection are in ``[connections.NAME]``, those of a model in its :class:`~delf.llm.LLMConfig`,
# and formats and commands have none.
_KINDS_WITHOUT_OPTIONS: Final = frozenset({"command", "connection", "format", "model"})


def check_options(host: PluginHost, plugin: str, options: Mapping[str, Any]) -> None:
    """Check the options of ``[plugins.NAME]`` against the plugin's settings classes and factories.

    The options of an unknown plugin are not checked.

    Args:
        host: The host of the plugin.
        plugin: The name.
        options: The options.

    Raises:
        ConfigurationError: For an option that is unknown to one of the settings classes or
            factories, or does not fit its type; for any option if the plugin takes no options.
        PluginError: If a factory cannot be imported.
    """
    settings_classes = host.settings_of(plugin)
    all_specs = host.specs_of(plugin)
    specs = [spec for spec in all_specs if spec.kind not in _KINDS_WITHOUT_OPTIONS]
    for settings in settings_classes:
        _check_settings(settings, options, f"[plugins.{plugin}]")
    for spec in specs:
        fitting_options(host, spec, options)  # raises if an option does not fit
    is_known_plugin = bool(all_specs)
    takes_options = bool(settings_classes or specs)
    if options and is_known_plugin and not takes_options:
        raise ConfigurationError(
            f"[plugins.{plugin}]: the plugin takes no options", hint=f"remove {', '.join(options)}"
        )


def _check_settings(settings: type[PluginSettings], options: Mapping[str, Any], place: str) -> None:
    """Raise for unknown options and values of the wrong type.

    Two kinds of problems are ignored: a missing value, which an environment variable may provide,
    and a problem of the settings as a whole, which a missing value may cause.
    """
    try:
        settings(**options)
    except ValidationError as error:
        for problem in error.errors():
            if problem["type"] == "missing" or not problem["loc"]:
                continue
            path = [str(key) for key in problem["loc"]]
            if problem["type"] != "extra_forbidden":
                fault = problem["msg"].removeprefix("Value error, ")
                raise ConfigurationError(f"{place} {'.'.join(path)}: {fault}") from None
            *tables, name = path
            if tables:
                raise ConfigurationError(
                    f"{place} {'.'.join(tables)}: there is no setting {name!r}"
                ) from None
            raise _unknown_setting(place, name, list(settings.model_fields)) from None


def _place(host: PluginHost, spec: Spec) -> str:
    return f"the {spec.kind} {spec.name!r}: [plugins.{host.plugin_of(spec) or spec.name}]"


def _converted(hint: Any, value: Any, place: str) -> Any:
    """Return an option's value, converted to the type that the factory declares."""
    try:
        # TOML reads a name of digits as a number, but the factory may declare text. The type is
        # put into a tuple, because ``TypeAdapter`` refuses a ``config`` for a pydantic model.
        one_of_type: Any = GenericAlias(tuple, (hint,))
        adapter = TypeAdapter[Any](one_of_type, config=ConfigDict(coerce_numbers_to_str=True))
    except PydanticUserError:  # not a type of plain data
        return value
    try:
        (converted,) = adapter.validate_python((value,))
    except ValidationError as error:
        problems = set(map(_problem_text, error.errors()))
        raise ConfigurationError(f"{place}: {'; '.join(sorted(problems))}") from None
    return converted


def _problem_text(problem: ErrorDetails) -> str:
    """Return the message of a problem, with the key if the problem is a missing or unknown key."""
    text = problem["msg"].removeprefix("Value error, ")
    is_about_key = problem["type"] in ("missing", "extra_forbidden")
    return f"{problem['loc'][-1]}: {text}" if is_about_key else text


def check_protocol(kind: str, instance: object, subject: str) -> None:
    """Raise if an object does not implement the protocol of its kind; None is accepted.

    Args:
        kind: The kind, a :attr:`delf.specs.Spec.kind`.
        instance: The object.
        subject: The name of the kind, for error messages.

    Raises:
        ConfigurationError: If the object is a class, has not all members of the protocol, or has a
            plain method instead of an async method.
    """
    if instance is None:
        return
    if isinstance(instance, type) and protocol_of(kind) is not None:
        raise ConfigurationError(
            f"{subject} is the class {instance.__name__}: give an object of it"
        )
    first_fault = next(faults(kind, instance), None)
    if first_fault is not None:
        raise ConfigurationError(f"{subject}, a {type(instance).__name__}, {first_fault}")
