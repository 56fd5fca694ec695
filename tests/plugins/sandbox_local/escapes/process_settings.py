"""Open itself to others, or get back what was given up, by prctl and capset."""

raw("PR_SET_DUMPABLE", 157, 4, 1, 0, 0, 0)
raw("PR_SET_PTRACER", 157, 0x59616D61, -1, 0, 0, 0)
raw("PR_SET_KEEPCAPS", 157, 8, 1, 0, 0, 0)
raw("PR_SET_MM", 157, 35, 1, 0x10000, 0, 0)
raw("PR_SET_SECCOMP", 157, 22, 1, 0, 0, 0) if False else None
raw("PR_CAP_AMBIENT_RAISE", 157, 47, 2, 21, 0, 0)
header, every = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
raw("capset", 126, header, every)
raw("personality", 135, 0x0040000)
raw("arch_prctl of shadow stacks", 158, 0x5002, 1)
