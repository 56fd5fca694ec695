"""The demonstration ``delf demo``."""
