"""Handles that need no opening: the process's own and its thread's."""

for handle in (-10000, -10001, -10002, -10003):
    raw("pidfd_send_signal", 424, handle, 0, None, 0)
    raw("pidfd_send_signal to the group", 424, handle, 0, None, 4)
    raw("pidfd_getfd", 438, handle, 0, 0)
    raw("process_madvise", 440, handle, (ctypes.c_size_t * 2)(), 1, 4, 0)
    raw("setns", 308, handle, 0x40000000)
    raw("waitid", 247, 3, handle, ctypes.create_string_buffer(128), 4 | 1, None)
