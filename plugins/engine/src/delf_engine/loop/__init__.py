"""The steps of a task in order, one module each."""
