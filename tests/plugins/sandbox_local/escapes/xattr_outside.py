"""Write an extended attribute of a file of the host."""

attempt("setxattr", posix.setxattr, SECRET, "user.pwned", b"1")
attempt("listxattr", posix.listxattr, SECRET)
raw("removexattr", 197, SECRET.encode(), b"user.pwned")
