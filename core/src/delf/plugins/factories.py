"""Makes the object behind a spec with the options that the user set for its plugin."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from delf.errors import ConfigurationError
from delf.plugins.host import PluginHost
from delf.specs import Spec

_GIVEN: Final = ("context", "mode")
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "strategy": ("solve",),
    "memory": ("search", "aclose"),
    "prefilter": ("select",),
    "embedder": ("embed", "model", "dimension", "batch_size"),
}
"""What every task asks of an object, by kind: one that lacks it would fail late or in silence."""


def make(
    host: PluginHost,
    spec: Spec,
    options: Mapping[str, Mapping[str, Any]],
    offered: Mapping[str, Any] | None = None,
    /,
    **more: Any,
) -> Any:
    """What a spec's factory makes.

    Options are converted to the types that the factory declares.

    Args:
        host: Whose spec it is.
        spec: The spec.
        options: Options by plugin name, from ``[plugins.NAME]``.
        offered: Given where the factory has a parameter of that name.
        more: Options from elsewhere, which win.

    Raises:
        ConfigurationError: For an option that the factory does not take, a value that does not
            fit its type, and an object that lacks what its kind must have.
        PluginError: When the factory cannot be imported.
    """
    plugin = host.plugin_of(spec) or spec.name
    factory, what = host.resolve(spec), f"the {spec.kind} {spec.name!r}"
    signature = inspect.signature(factory)
    taken = {k: v for k, v in (offered or {}).items() if k in signature.parameters}
    arguments = {**fitting_options(host, spec, options.get(plugin, {})), **taken, **more}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"{what}: {error}", hint=f"give it in [plugins.{plugin}]"
        ) from None
    made = factory(**arguments)
    check_made(spec.kind, made, what)
    return made


def fitting_options(host: PluginHost, spec: Spec, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A plugin's options as the factory of a spec of it takes them.

    Args:
        host: Whose spec it is.
        spec: The spec.
        given: The options.

    Raises:
        ConfigurationError: For one that the factory does not take, or that does not fit its type.
        PluginError: When the factory cannot be imported.
    """
    factory = host.resolve(spec)
    signature = inspect.signature(factory)
    where = f"the {spec.kind} {spec.name!r}: [plugins.{host.plugin_of(spec) or spec.name}]"
    try:
        signature.bind_partial(**given)
    except TypeError as error:
        known = ", ".join(n for n in signature.parameters if n not in _GIVEN) or "none"
        raise ConfigurationError(f"{where}: {error}", hint=f"its options: {known}") from None
    try:
        declares = factory.__init__ if isinstance(factory, type) else factory
        hints = typing.get_type_hints(declares, include_extras=True)
    except (AttributeError, NameError, TypeError):  # a name that only type checkers import
        return given
    return {
        name: _fit(hints[name], value, f"{where} {name}") if name in hints else value
        for name, value in given.items()
    }


def check_made(kind: str, made: object, what: str) -> None:
    """Refuse an object that cannot be one of its kind; None is left to whoever has no use for it.

    Args:
        kind: As in :attr:`delf.specs.Spec.kind`.
        made: The object.
        what: What it is to be, for the message.

    Raises:
        ConfigurationError: For a class in place of an object, and for one that lacks a member.
    """
    needs = () if made is None else _NEEDS.get(kind, ())
    if needs and isinstance(made, type):
        hint = f"give an object: {made.__name__}(…)"
        raise ConfigurationError(f"{what} is the class {made.__name__}", hint=hint)
    if lacks := [name for name in needs if not hasattr(made, name)]:
        text = f"{what}, a {type(made).__name__}, has no {', '.join(lacks)}"
        raise ConfigurationError(text, hint=f"a {kind} has: {', '.join(needs)}")


def _fit(hint: Any, value: Any, place: str) -> Any:
    try:
        adapter = TypeAdapter[Any](hint, config=ConfigDict(coerce_numbers_to_str=True))
    except PydanticUserError:  # not a type of plain data
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise ConfigurationError(
            "; ".join(f"{place}: {item['msg'].removeprefix('Value error, ')}" for item in problems)
        ) from None
