"""Databases for the tests of the plugin memory-semantic."""

from support.fixtures import *  # noqa: F403
