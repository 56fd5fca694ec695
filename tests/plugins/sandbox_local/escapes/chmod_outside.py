"""Change the rights of a file of the host: Landlock does not watch chmod."""

attempt("chmod", posix.chmod, SECRET, 0o666)
raw("fchmodat", 268, AT_FDCWD, SECRET.encode(), 0o666, 0)
raw("fchmodat2", 452, AT_FDCWD, SECRET.encode(), 0o666, 0)
raw("chmod of a folder", 90, FOLDER.encode(), 0o777)
