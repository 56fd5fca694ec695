"""A prefilter for delf that asks no model."""
