"""Databases for conversations that are kept."""

from support.fixtures import *  # noqa: F403 - databases
