"""Databases for the tests of the sql plugin."""

from __future__ import annotations

from support.fixtures import *  # noqa: F403
