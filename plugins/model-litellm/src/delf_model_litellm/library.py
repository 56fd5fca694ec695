"""litellm itself: imported late, off the event loop, and without its habits.

On its own, litellm asks GitHub for prices and for Anthropic's headers, reads the nearest ``.env``
into the process and prints to the terminal. This module prevents all of that, with environment
variables that are set during the import and restored afterwards.
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
from collections.abc import Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from delf.machine.contexts import shared_task

_QUIET_VARIABLES: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
_LOGGERS: Final = ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy")
_FIRST_CALL_MODULE: Final = "openai.resources.chat"
_lock: Final = threading.Lock()
# Set by load_now() after the import. ``sys.modules`` has litellm as soon as the import begins.
_imported: Final = threading.Event()
# The running import of each event loop: a loop cannot await the task of another loop.
_loading: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = (
    WeakKeyDictionary()
)
_callbacks: Final[set[asyncio.Task[Any]]] = set()


async def load() -> Any:
    """Return the module ``litellm``; the first call imports the module in a thread.

    Concurrent callers share one import. Otherwise each caller would occupy a thread that waits for
    the lock of load_now(), and a hundred callers would use up the loop's threads.
    """
    if _imported.is_set():
        return sys.modules["litellm"]
    loop = asyncio.get_running_loop()
    if loop not in _loading:
        _loading[loop] = shared_task(asyncio.to_thread(load_now))
    loading = _loading[loop]
    try:
        return await asyncio.shield(loading)  # a cancelled caller must not end the import
    finally:
        if loading.done():  # do not keep it: after a failure, the next call imports again
            _loading.pop(loop, None)


def load_now() -> Any:
    """Import ``litellm`` and the modules that its first call needs; return ``litellm``."""
    with _lock:
        if not _imported.is_set():
            _import_litellm()
            _imported.set()
    return sys.modules["litellm"]


def _import_litellm() -> None:
    """Import litellm and everything that its first call would load; set defaults for delf."""
    is_first = "litellm" not in sys.modules
    with _environment(_QUIET_VARIABLES):
        litellm: Any = importlib.import_module("litellm")
        importlib.import_module(_FIRST_CALL_MODULE)  # else its import would block the event loop
        _load_header_table()
        _run_callbacks_on_own_loop()
    litellm.suppress_debug_info = True
    if is_first:
        # Without this, Python's last garbage collection walks through all of litellm, for 1 s.
        atexit.register(gc.freeze)
    if is_first and not os.environ.get("LITELLM_LOG"):
        _redirect_logs()
    if not os.environ.get("OPENAI_LOG"):
        _limit_to_warnings("openai")  # in debug it logs whole requests, with extra headers


@contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    added = [name for name in variables if name not in os.environ]
    os.environ.update({name: variables[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _load_header_table() -> None:
    """Make litellm load its packaged table of Anthropic's headers now.

    Otherwise litellm downloads the table with the first request.
    """
    try:
        manager: Any = importlib.import_module("litellm.anthropic_beta_headers_manager")
        manager.get_provider_name("anthropic")  # any lookup loads the table
    except (ImportError, AttributeError):
        logging.getLogger(__name__).debug("this litellm has no header table to load")


def _run_callbacks_on_own_loop() -> None:
    """Make litellm run the callbacks of a call on the event loop of that call.

    litellm's own worker serves one event loop at a time. The worker drops the callbacks of all
    other loops, and Python then warns about coroutines that were never awaited.
    """
    try:
        module: Any = importlib.import_module("litellm.litellm_core_utils.logging_worker")
        module.GLOBAL_LOGGING_WORKER.ensure_initialized_and_enqueue = _run_callback
    except (ImportError, AttributeError):
        logging.getLogger(__name__).debug("this litellm has no worker for its callbacks")


def _run_callback(async_coroutine: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.get_running_loop().create_task(async_coroutine)
    _callbacks.add(task)
    task.add_done_callback(_callbacks.discard)


def _redirect_logs() -> None:
    """Send litellm's log messages to the program's logging instead of the terminal."""
    for name in _LOGGERS:
        logging.getLogger(name).handlers[:] = [logging.NullHandler()]
        _limit_to_warnings(name)


def _limit_to_warnings(name: str) -> None:
    """Limit a logger to warnings and errors, unless the program has set a level."""
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
