"""What the program never says: the secrets of the environment and of the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from delf.config.values import substitute
from delf.engine.secrets.known import (
    secrets_of_agent,
    secrets_of_environ,
    secrets_of_headers,
    secrets_of_options,
)
from delf.engine.secrets.redaction import Redactor
from delf.errors import ConfigurationError

if TYPE_CHECKING:
    from delf.config.project import Project

_TABLES = frozenset({"headers", "providers"})
"""Tables of which every value is a secret, whatever its name."""


def redactor_of(load: Callable[[], Project]) -> Redactor:
    """Knows every secret that is configured here, whether or not a task is given it.

    Args:
        load: Reads the project.
    """
    known = list(secrets_of_environ(os.environ))
    try:
        known += _secrets_of(load())
    except Exception:  # whatever it is, it is told already: this serves to tell of failures
        return Redactor(known)
    return Redactor(known)


def _secrets_of(project: Project) -> Iterator[str]:
    yield from secrets_of_agent(None, (), project.plugin_options, project.environ)
    for values in (project.agent_values, *(e.values for e in project.connections.values())):
        for path, given in values.leaves():
            try:
                value = substitute(given.value, project.environ, given.origin)
            except ConfigurationError:
                value = given.value  # a variable is missing, and the rest is still a secret
            if _TABLES.intersection(path[:-1]) and isinstance(value, str):
                yield from secrets_of_headers({path[-1]: value})
            else:
                yield from secrets_of_options({path[-1]: value}, sure=True)
