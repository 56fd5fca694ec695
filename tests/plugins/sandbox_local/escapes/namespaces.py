"""Get new privileges in namespaces of its own, or enter those of others."""

for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80, 0):
    raw(f"unshare {flag:#x}", 272, flag)
for kind in ("user", "mnt", "net", "pid"):
    attempt(f"ns {kind}", posix.open, f"/proc/{HOST}/ns/{kind}", posix.O_RDONLY)
raw("setns", 308, 3, 0)
stack = ctypes.create_string_buffer(65536)
for flag in (0x20000, 0x40000000, 0x8000000, 0x4000000):
    result = syscall(56, 0x10D00 | flag, ctypes.addressof(stack) + 65000, 0, 0, 0)
    print("ESCAPED thread" if result > 0 else "refused thread", result)
