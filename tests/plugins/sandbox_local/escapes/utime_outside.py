"""Change the times of a file of the host."""

attempt("utime", posix.utime, SECRET, (1, 1))
raw("utimensat", 280, AT_FDCWD, SECRET.encode(), None, 0)
raw("utimes", 235, SECRET.encode(), None)
raw("utime", 132, SECRET.encode(), None)
raw("futimesat", 261, AT_FDCWD, SECRET.encode(), None)
