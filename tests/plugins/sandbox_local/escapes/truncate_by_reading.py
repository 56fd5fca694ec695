"""Cut a file that may only be read: Landlock before its third version does not notice."""

O_TRUNC = 0o1000
for name in (INPUT, SECRET):
    raw(f"open {name[-10:]}", 2, name.encode(), posix.O_RDONLY | O_TRUNC)
    raw(f"openat {name[-10:]}", 257, AT_FDCWD, name.encode(), posix.O_RDONLY | O_TRUNC)
    raw(f"open without access {name[-10:]}", 2, name.encode(), 3 | O_TRUNC)
    raw(f"high bits {name[-10:]}", 2, name.encode(), O_TRUNC | 1 << 40)
fd = posix.open(INPUT, posix.O_RDONLY)
raw("ftruncate", 77, fd, 0)
attempt("writing", posix.open, INPUT, posix.O_WRONLY)
