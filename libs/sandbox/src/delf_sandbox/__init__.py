"""Shared parts of sandboxes that run a CPython: the wire, the host's session, the guest."""
