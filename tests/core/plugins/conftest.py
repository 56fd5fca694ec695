"""A folder of installed distributions that are made up."""

from support.plugin_site import *  # noqa: F403 - record, site
