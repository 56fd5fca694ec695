"""Put a link to the outside where the host or a check will follow it."""

made = attempt("symlink", posix.symlink, SECRET, "s")
raw("symlinkat", 266, SECRET.encode(), AT_FDCWD, b"s2")
if made is None:
    attempt("open through a link", posix.open, "s", posix.O_RDONLY)
