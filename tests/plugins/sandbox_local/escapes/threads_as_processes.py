"""Start threads that are not threads: with other memory, another parent, a tracer, a handle."""

VM, FS, FILES, SIGHAND, THREAD = 0x100, 0x200, 0x400, 0x800, 0x10000
stack = ctypes.create_string_buffer(65536)
top = ctypes.addressof(stack) + 65000 & ~15
for what, flags in (
    ("without memory", THREAD),
    ("a process in its memory", VM | SIGHAND | 17),
    ("vfork", 0x4000 | VM | 17),
    ("with its parent", 0x8000 | 17),
    ("traced", 0x2000 | VM | FS | FILES | SIGHAND | THREAD),
    ("with a handle", 0x1000 | 17),
    ("into a group", 1 << 33 | 17),
    ("a new time", 0x80 | VM | SIGHAND | THREAD),
):
    pid = syscall(56, flags, top if flags & VM else 0, ctypes.byref(ctypes.c_int()), 0, 0)
    if pid == 0:
        libc.syscall(60, 0)
    print("ESCAPED" if pid > 0 else "refused", what, pid)
