"""litellm itself: imported late, off the event loop, and without its habits.

On its own, litellm asks GitHub for prices and for Anthropic's headers, reads the nearest
``.env`` into the process and prints to the terminal. Here it does none of that. The variables
that stop it are set while it is imported and restored after.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import logging
import os
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

_QUIET: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
_LOGGERS: Final = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
_READY: Final = "openai.resources.chat"
_TOKENS: Final = "litellm.litellm_core_utils.default_encoding"
_lock: Final = threading.Lock()


async def load() -> Any:
    """The module ``litellm``, imported in a thread when this is the first use."""
    litellm = sys.modules.get("litellm")
    if litellm is not None and _READY in sys.modules and not _lock.locked():
        return litellm
    return await asyncio.to_thread(load_now)


async def load_for_streams() -> None:
    """What litellm's first stream reads from disk (its tokens' table), off the event loop."""
    if _TOKENS not in sys.modules:
        with suppress(ImportError):
            await asyncio.to_thread(importlib.import_module, _TOKENS)


def load_now() -> Any:
    """The module ``litellm``, with what its first call would import."""
    with _lock:
        first = "litellm" not in sys.modules
        with _environment(_QUIET), _no_collection():
            litellm: Any = importlib.import_module("litellm")
            importlib.import_module(_READY)
            _load_headers()
        litellm.suppress_debug_info = True
        if first:
            atexit.register(gc.freeze)  # else Python looks through all of litellm at its end: 1 s
        if first and not os.environ.get("LITELLM_LOG"):
            _quieten()
        if not os.environ.get("OPENAI_LOG"):
            _raise_level("openai")  # in debug it logs whole requests, with extra headers
        return litellm


@contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    added = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _no_collection() -> Generator[None]:
    """One garbage collection at the end instead of many in between, which take 0.7 s."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
            gc.collect()  # here, or else in the middle of the first call


def _load_headers() -> None:
    """Read Anthropic's header table from the package; its first call would fetch it."""
    try:
        manager: Any = importlib.import_module("litellm.anthropic_beta_headers_manager")
        manager.get_provider_name("anthropic")
    except (ImportError, AttributeError):
        logging.getLogger(__name__).debug("this litellm has no header table to read ahead")


def _quieten() -> None:
    """Hand litellm's messages to the program's logging instead of the terminal."""
    for name in _LOGGERS:
        logging.getLogger(name).handlers[:] = [logging.NullHandler()]
        _raise_level(name)


def _raise_level(name: str) -> None:
    """Warnings and worse, unless the program has chosen a level."""
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
