"""Load code into the kernel, or count its events."""

raw("bpf map", 321, 0, (ctypes.c_uint32 * 32)(2, 4, 4, 1), 128)
raw("bpf program", 321, 5, (ctypes.c_uint32 * 32)(1), 128)
raw("perf_event_open", 298, (ctypes.c_uint32 * 32)(1, 128), 0, -1, -1, 0)
raw("init_module", 175, b"", 0, b"")
raw("finit_module", 313, 0, b"", 0)
raw("kexec_load", 246, 0, 0, None, 0)
raw("seccomp", 317, 2, 0, (ctypes.c_uint32 * 1)(0x7FFF0000))
raw("iopl", 172, 3)
raw("ioperm", 173, 0, 1, 1)
raw("modify_ldt", 154, 0, (ctypes.c_char * 64)(), 64)
