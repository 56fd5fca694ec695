"""Functions in child processes, which can read what they are given and can write nothing."""
