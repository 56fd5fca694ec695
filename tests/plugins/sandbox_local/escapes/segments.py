"""Settings of the processor that belong to a thread, and the code that old ones are for."""

buffer = (ctypes.c_ulong * 16)()
raw("set_thread_area", 205, buffer)
raw("get_thread_area", 211, buffer)
for what, code in (
    ("ARCH_SET_GS", 0x1001),
    ("ARCH_SET_FS", 0x1002),
    ("ARCH_SET_CPUID", 0x1012),
    ("ARCH_REQ_XCOMP_PERM", 0x1023),
    ("ARCH_MAP_VDSO_32", 0x2002),
    ("ARCH_ENABLE_TAGGED_ADDR", 0x4002),
):
    raw(what, 158, code, ctypes.addressof(buffer))
for what, number in (("uselib", 134), ("ustat", 136), ("sysctl", 156), ("create_module", 174)):
    raw(what, number, b"", 0, 0)
for number in (177, 178, 180, 181, 182, 183, 184, 185, 214, 215, 236):
    raw(f"forgotten call {number}", number, 0, 0, 0, 0)
