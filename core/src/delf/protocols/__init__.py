"""Protocols of each kind of plugin: one small async protocol in each module."""
