"""Turn a socket that is there into another one: connect, bind, listen, sendmsg with rights."""

address = struct = real_import("struct").pack("=H", 1) + f"{FOLDER}/l.sock".encode() + b"\0"
for fd in range(3, 20):
    for what, number in (("connect", 42), ("bind", 49)):
        if syscall(number, fd, address, len(address)) == 0:
            print("ESCAPED", what, fd)
    for what, arguments in (
        ("listen", (50, fd, 5)),
        ("accept", (43, fd, None, None)),
        ("accept4", (288, fd, None, None, 0)),
    ):
        if syscall(*arguments) >= 0:
            print("ESCAPED", what, fd)
    if syscall(46, fd, (ctypes.c_size_t * 7)(), 0) >= 0:
        print("ESCAPED sendmsg", fd)
    if syscall(54, fd, 1, 26, (ctypes.c_size_t * 2)(), 16) == 0:
        print("ESCAPED setsockopt", fd)
