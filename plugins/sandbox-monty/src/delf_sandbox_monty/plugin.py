"""The capabilities of this plugin."""

from __future__ import annotations

from collections.abc import Iterable

from delf.hookspecs import hookimpl
from delf.specs import SandboxSpec


@hookimpl
def delf_sandbox_backends() -> Iterable[SandboxSpec]:
    """Yield the backend ``monty``."""
    yield SandboxSpec(
        name="monty",
        summary="An interpreter of a Python subset, written in Rust, that contains no CPython.",
        factory="delf_sandbox_monty.backend:MontyBackend",
        isolation="interpreter",
        subset=True,
        unsupported=(
            "yield in functions whose tool calls change data, classes with base classes (own "
            "exceptions and enums, too), properties and decorators of methods, methods such as "
            "__len__, __bool__ or __lt__ of classes, asyncio.Queue, Event and timeout, and every "
            "module but asyncio, base64, bisect, collections, copy, csv, dataclasses, datetime, "
            "decimal, functools, hashlib, heapq, html, io, itertools, json, math, operator, "
            "pathlib, pprint, random, re, statistics, time, typing"
        ),
    )
