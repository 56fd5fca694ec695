"""Change the wire or a pair: buffers, filters, timestamps, who gets signals."""

pair = (ctypes.c_int * 2)()
assert syscall(53, 1, 1, 0, pair) == 0
for fd in (*range(3, 20), *pair):
    for option in (1, 2, 7, 8, 16, 26, 29, 32, 33, 42, 46, 50, 60, 69, 76):
        if syscall(54, fd, 1, option, (ctypes.c_int * 4)(1 << 20), 16) >= 0:
            print("ESCAPED setsockopt", option, fd)
    for request in (0x8902, 0x8904, 0x89E0, 0x89E1, 0x8911, 0x894C, 0x5411, 0x5422):
        result = syscall(16, fd, request, ctypes.create_string_buffer(64))
        if result not in (-1, -9):
            print("ESCAPED ioctl", hex(request), fd, result)
