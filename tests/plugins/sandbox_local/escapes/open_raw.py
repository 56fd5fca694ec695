"""Open a file of the host below every Python check, by every call that opens."""

attempt("open", posix.open, SECRET, posix.O_RDONLY)
raw("open(2)", 2, SECRET.encode(), 0)
raw("creat", 85, f"{FOLDER}/pwned".encode(), 0o644)
raw("openat", 257, AT_FDCWD, SECRET.encode(), 0)
raw("openat2", 437, AT_FDCWD, SECRET.encode(), b"\0" * 24, 24)
attempt("listdir", posix.listdir, FOLDER)
attempt("listdir of the home", posix.listdir, "/root")
