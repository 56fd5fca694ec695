"""Confine itself further, so that what confines it now sees less, or a listener answers."""

program = (ctypes.c_uint64 * 2)(0x7FFF000000000006, 0)
for flags in (0, 1, 2, 4, 8, 16, 32):
    raw(f"seccomp filter {flags}", 317, 1, flags, program)
raw("seccomp strict", 317, 0, 0, None)
raw("seccomp notification sizes", 317, 3, 0, program)
raw("PR_SET_SECCOMP", 157, 22, 2, program, 0, 0)
raw("PR_GET_SECCOMP", 157, 21, 0, 0, 0, 0)
raw("PR_SET_SYSCALL_USER_DISPATCH", 157, 59, 1, 0, 0, program)
raw("landlock_create_ruleset", 444, (ctypes.c_uint64 * 3)(1), 8, 0)
raw("landlock_restrict_self", 446, 3, 0)
raw("lsm_set_self_attr", 460, 100, program, 16, 0)
