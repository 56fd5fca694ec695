"""delf's local sandbox: a confined process for each task."""
