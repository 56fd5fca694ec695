"""delf's Docker sandbox: a disposable container for each task."""
