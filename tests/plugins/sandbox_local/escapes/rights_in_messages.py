"""Pass descriptors, or take them, by the calls that carry more than bytes."""

header = (ctypes.c_size_t * 7)()
several = (ctypes.c_size_t * 16)()
for fd in range(3, 20):
    for what, number, arguments in (
        ("sendmsg", 46, (fd, header, 0)),
        ("recvmsg", 47, (fd, header, 0x40)),
        ("sendmmsg", 307, (fd, several, 1, 0)),
        ("recvmmsg", 299, (fd, several, 1, 0x40, None)),
        ("setsockopt SO_PASSCRED", 54, (fd, 1, 16, b"\1\0\0\0", 4)),
        ("setsockopt SO_PASSPIDFD", 54, (fd, 1, 76, b"\1\0\0\0", 4)),
        ("setsockopt SO_SNDBUFFORCE", 54, (fd, 1, 32, b"\0\0\0\1", 4)),
    ):
        if syscall(number, *arguments) >= 0:
            print("ESCAPED", what, fd)
