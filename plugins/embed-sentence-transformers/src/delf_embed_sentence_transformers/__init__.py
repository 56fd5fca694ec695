"""Embeddings for delf with sentence-transformers."""
