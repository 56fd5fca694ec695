"""Makes the object behind a spec with the options that the user set for its plugin."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from delf.errors import ConfigurationError
from delf.plugins.host import PluginHost
from delf.specs import Spec


def make(
    host: PluginHost,
    spec: Spec,
    options: Mapping[str, Mapping[str, Any]],
    offered: Mapping[str, Any] | None = None,
    /,
    **more: Any,
) -> Any:
    """What a spec's factory makes.

    Args:
        host: Whose spec it is.
        spec: The spec.
        options: Options by plugin name, from ``[plugins.NAME]``.
        offered: Given where the factory has a parameter of that name.
        more: Options from elsewhere, which win.

    Raises:
        ConfigurationError: For an option that the factory does not take.
        PluginError: When the factory cannot be imported.
    """
    plugin = host.plugin_of(spec) or spec.name
    factory = host.resolve(spec)
    signature = inspect.signature(factory)
    taken = {k: v for k, v in (offered or {}).items() if k in signature.parameters}
    arguments = {**options.get(plugin, {}), **taken, **more}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise ConfigurationError(
            f"the {spec.kind} {spec.name!r}: {error}", hint=f"its options: {known}"
        ) from None
    return factory(**arguments)
