"""Locks that lend priority, whose bookkeeping in the kernel was broken more than once."""

word = (ctypes.c_uint32 * 4)()
other = (ctypes.c_uint32 * 4)()
for name, kind in (
    ("FUTEX_LOCK_PI", 6),
    ("FUTEX_UNLOCK_PI", 7),
    ("FUTEX_TRYLOCK_PI", 8),
    ("FUTEX_WAIT_REQUEUE_PI", 11),
    ("FUTEX_CMP_REQUEUE_PI", 12),
    ("FUTEX_LOCK_PI2", 13),
    ("FUTEX_FD", 2),
):
    for flags in (0, 128, 256, 384):
        result = syscall(202, word, kind | flags, 1, 1, other, 0)
        print("ESCAPED" if result not in (-1, -38) else "refused", name, flags, result)
raw("futex_requeue", 456, word, 0, 1, 1)
