"""Give a file of the host a second name in the scratch folder, and read that."""

attempt("link", posix.link, SECRET, "linked")
attempt("linkat", lambda: posix.link(SECRET, "linked2", follow_symlinks=True))
raw("linkat of a descriptor", 265, 0, b"", AT_FDCWD, b"linked3", 0x1000)
