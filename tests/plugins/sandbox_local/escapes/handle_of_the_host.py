"""Ask a socket who is at its other end: a number, a handle, a label, a filter."""

value = ctypes.create_string_buffer(4096)
options = {"SO_PEERCRED": 17, "SO_PEERSEC": 31, "SO_PEERGROUPS": 59, "SO_PEERPIDFD": 77}
options |= {"SO_GET_FILTER": 26, "SO_COOKIE": 57, "SO_NETNS_COOKIE": 71, "SO_MEMINFO": 55}
for fd in range(3, 20):
    for name, option in options.items():
        size = ctypes.c_int(len(value))
        if syscall(55, fd, 1, option, value, ctypes.byref(size)) >= 0:
            print("ESCAPED", name, fd)
