"""The child's side: receives a call of a function, and sends its answer."""

from __future__ import annotations

import inspect
import socket
from pkgutil import resolve_name
from typing import Any, Final

from delf.errors import DelfError, OptionalDependencyError
from delf.notes import notes_of_call
from delf.values.encoding import TooLargeError, UnsupportedValueError, check_size, dumps, loads
from delf_confined.wire import receive, send

_MAX_MESSAGE_CHARS: Final = 4000


def serve(wire: socket.socket, function: str, max_bytes: int) -> None:
    """Receive the arguments of a call, call the function, and send the answer.

    Args:
        wire: The socket to the program that makes the call.
        function: The name of the function, as ``module:name``.
        max_bytes: The maximum number of bytes of the answer.
    """
    with notes_of_call() as notes:
        answer = _call_function(wire, function, max_bytes)
        if "error" in answer:
            kind, message, *rest = answer["error"]
            answer["error"] = [kind, message[:_MAX_MESSAGE_CHARS], *rest]
        answer["notes"] = list(notes)
    payload = dumps(answer)
    if len(payload) > max_bytes:
        # A truncated answer would look like a complete one.
        payload = dumps({"limit": "answer", "notes": []})
    send(wire, payload)


def _call_function(wire: socket.socket, function: str, max_bytes: int) -> dict[str, Any]:
    """Call the function with the received arguments.

    Return a mapping with one key: ``value`` for a result, ``error`` for an error of delf (its
    type, message, hint and package), ``failed`` for any other error, or ``limit`` for an exceeded
    limit.
    """
    try:
        arguments = loads(receive(wire))
        value: Any = resolve_name(function)(**arguments)
        if inspect.isawaitable(value):
            # Imported only for async functions, because the import of asyncio is slow. Usually the
            # template process has imported asyncio for the function already.
            import asyncio

            value = asyncio.run(_await_value(value))
        check_size(value, max_bytes)
    except DelfError as error:
        package = error.package if isinstance(error, OptionalDependencyError) else None
        return {"error": [type(error).__name__, error.message, error.hint, package]}
    except MemoryError:
        return {"limit": "memory"}
    except TooLargeError:
        return {"limit": "answer"}
    except RecursionError:
        return {"limit": "depth"}
    except UnsupportedValueError as error:
        return {"error": ["ToolExecutionError", str(error), None, None]}
    except Exception as error:  # parsers fail in any way on untrusted input
        return {"failed": f"{type(error).__name__}: {error}"[:1000]}
    return {"value": value}


async def _await_value(value: Any) -> Any:
    """Await a value; ``asyncio.run()`` itself takes only coroutines, and no other awaitables."""
    return await value
