"""Cut a file of the host, which old versions of Landlock let pass."""

attempt("truncate", posix.truncate, SECRET, 0)
attempt("open with O_TRUNC", posix.open, SECRET, posix.O_RDONLY | posix.O_TRUNC)
