"""Views of a task for people, computed from its events."""
