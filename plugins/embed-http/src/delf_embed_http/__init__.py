"""Embeddings for delf over HTTP."""
