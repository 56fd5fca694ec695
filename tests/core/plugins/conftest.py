"""A folder of made-up installed distributions."""

from support.plugin_site import *  # noqa: F403 - record, site
