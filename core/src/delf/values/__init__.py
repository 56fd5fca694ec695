"""Encoding, conversion, reading and limits of values from outside and between processes."""
