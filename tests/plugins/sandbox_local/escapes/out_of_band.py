"""Send urgent data, which the other end has to take out of turn."""

MSG_OOB = 1
pair = (ctypes.c_int * 2)()
assert syscall(53, 1, 1, 0, pair) == 0
for fd in (*range(3, 20), *pair):
    if syscall(44, fd, b"x", 1, MSG_OOB, None, 0) >= 0:
        print("ESCAPED sent", fd)
    if syscall(45, fd, ctypes.create_string_buffer(8), 8, MSG_OOB | 0x40, None, None) != -1:
        print("ESCAPED asked for it", fd)
    if syscall(44, fd, b"x", 1, 0x4000000, None, 0) >= 0:  # MSG_ZEROCOPY
        print("ESCAPED sent without a copy", fd)
