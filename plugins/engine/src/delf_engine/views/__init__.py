"""Views of a task for people: folds over its events."""
