"""Helpers for network services: addresses, response bodies, retries, TLS and outages."""
