"""Hold a lock or a lease on a file that others use, so that they wait; ask who holds one."""

name = sys.modules["json"].__file__
fd = posix.open(name, posix.O_RDONLY)
raw("flock", 73, fd, 2 | 4)
raw("F_SETLEASE", 72, fd, 1024, 0)
raw("F_NOTIFY", 72, fd, 1026, 0x8000003F)
raw("F_ADD_SEALS", 72, fd, 1033, 1)
raw("F_SET_RW_HINT", 72, fd, 1036, ctypes.byref(ctypes.c_uint64(5)))
lock = real_import("struct").pack("hhqqi4x", 1, 0, 0, 0, 0)
raw("write lock", 72, fd, 6, lock)
read_lock = ctypes.create_string_buffer(real_import("struct").pack("hhqqi4x", 0, 0, 0, 0, 0))
for command in (5, 6, 7, 36, 37, 38):
    raw(f"lock {command}", 72, fd, command, read_lock)
