"""A pipe into which the kernel writes what happens to keys and mounts."""

pair = (ctypes.c_int * 2)()
raw("pipe2 O_NOTIFICATION_PIPE", 293, pair, 0o200)
raw("pipe2 O_NOTIFICATION_PIPE and more", 293, pair, 0o2004200)
for fd in range(3, 20):
    for what, request in (("size", 0x5760), ("filter", 0x5761)):
        if syscall(16, fd, request, 8) != -1:
            print("ESCAPED", what, fd)
raw("watch_mount", 444 + 23, AT_FDCWD, b"/", 0, 3, 1)
