"""Give a file of the host to somebody else."""

uid, gid = posix.getuid(), posix.getgid()
attempt("chown", posix.chown, SECRET, uid, gid)
attempt("lchown", posix.lchown, SECRET, uid, gid)
raw("fchownat", 260, AT_FDCWD, SECRET.encode(), uid, gid, 0)
