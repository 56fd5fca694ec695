"""Prefilters for delf that ask the light model."""
