"""Shared parts of delf's plugins for Google; they build on :mod:`delf_google.connection`."""
