"""Read the processor time of another process, or wait for it: its clock has a negative number."""

time = (ctypes.c_long * 2)()
for pid in (HOST, TEMPLATE):
    for kind in (0, 1, 2):
        clock = (~pid << 3) | kind
        raw(f"clock_gettime {kind}", 228, clock, time)
        raw(f"clock_getres {kind}", 229, clock, time)
        raw(f"clock_nanosleep {kind}", 230, clock, 0, (ctypes.c_long * 2)(0, 1), None)
        raw(f"clock_settime {kind}", 227, clock, time)
raw("wake the machine", 283, 8, 0)
raw("wake the machine at boot's time", 283, 9, 0)
