"""Take a descriptor out of the host."""

for pid in (HOST, TEMPLATE):
    handle = raw("pidfd_open", 434, pid, 0)
    raw("pidfd_getfd", 438, handle or 3, 0, 0)
raw("pidfd_send_signal", 424, 3, 10, None, 0)
