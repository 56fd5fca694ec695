"""Reach outward from a descriptor of the scratch folder."""

scratch = posix.open(".", posix.O_RDONLY)
up = "../" * 20 + SECRET.lstrip("/")
attempt("openat upward", lambda: posix.open(up, posix.O_RDONLY, dir_fd=scratch))
attempt("listing of the parent", posix.listdir, "..")
attempt("listing of the parent's parent", posix.listdir, "../..")
