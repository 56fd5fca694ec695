"""Values between processes and from outside: encoded, converted, read and limited."""
