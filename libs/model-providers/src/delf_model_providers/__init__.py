"""Shared parts of plugins for language models: names, addresses, keys, failures, retries."""
