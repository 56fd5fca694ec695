"""Functions in child processes that can read their input and write nothing."""
