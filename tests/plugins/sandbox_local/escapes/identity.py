"""Become somebody else."""

for what, number, arguments in (
    ("setuid", 105, (0,)),
    ("setgid", 106, (0,)),
    ("setreuid", 113, (0, 0)),
    ("setregid", 114, (0, 0)),
    ("setgroups", 116, (0, None)),
    ("setresuid", 117, (0, 0, 0)),
    ("setresgid", 119, (0, 0, 0)),
):
    raw(what, number, *arguments)
if syscall(122, 0) != posix.getuid() or syscall(123, 0) != posix.getgid():
    print("refused setfsuid")
