"""Reach outward through its own entry in /proc."""

attempt("root", posix.open, f"/proc/self/root{SECRET}", posix.O_RDONLY)
attempt("cwd", posix.open, f"/proc/self/cwd/../../..{SECRET}", posix.O_RDONLY)
attempt("mem", posix.open, "/proc/self/mem", posix.O_RDWR)
attempt("thread-self", posix.open, f"/proc/thread-self/root{SECRET}", posix.O_RDONLY)
