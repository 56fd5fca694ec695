"""Sandboxes of an agent: chosen, tested for their isolation, and started."""
