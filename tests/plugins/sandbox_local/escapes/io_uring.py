"""Let the kernel do calls that the filter would see."""

raw("io_uring_setup", 425, 8, (ctypes.c_char * 120)())
raw("io_uring_enter", 426, 3, 0, 0, 0, None, 0)
raw("io_uring_register", 427, 3, 0, None, 0)
raw("io_setup", 206, 8, ctypes.byref(ctypes.c_ulong(0)))
