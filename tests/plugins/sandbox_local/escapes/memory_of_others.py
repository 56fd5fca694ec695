"""Read and write the memory of the host and the template."""

buffer = ctypes.create_string_buffer(64)
local = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 64)
remote = (ctypes.c_size_t * 2)(0x400000, 64)
for pid in (HOST, TEMPLATE):
    raw("process_vm_readv", 310, pid, local, 1, remote, 1, 0)
    raw("process_vm_writev", 311, pid, local, 1, remote, 1, 0)
    raw("process_madvise", 440, -1, remote, 1, 21, 0)
    raw("kcmp", 312, pid, posix.getpid(), 0, 0, 0)
    raw("move_pages", 279, pid, 1, local, None, local, 0)
    raw("get_robust_list", 274, pid, local, remote)
