"""delf's sandbox on Monty, an interpreter of a Python subset written in Rust."""
