"""Databases for the journal and for DBOS."""

from support.fixtures import *  # noqa: F403
