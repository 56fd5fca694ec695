"""Static embeddings for delf."""
