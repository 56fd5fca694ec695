"""The providers that this plugin speaks with, each by its dialect."""

from __future__ import annotations

from typing import Final

from delf.providers import Providers
from delf.specs import Provider
from delf_model_providers.families import FAMILIES

PROVIDERS: Final[tuple[Provider, ...]] = FAMILIES
SUPPORTED_PROVIDERS: Final = Providers(PROVIDERS)
