"""Pin memory of the host, or take of its few huge pages."""

for what, flags in (("MAP_LOCKED", 0x2000), ("MAP_HUGETLB", 0x40000), ("MAP_GROWSDOWN", 0x100)):
    result = syscall(9, 0, 1 << 21, 3, 0x22 | flags, -1, 0)
    print("refused" if -4096 < result < 0 else "ESCAPED", what, result)
page = libc.valloc
page.restype = ctypes.c_void_p
place = page(1 << 20)
raw("mlock", 149, place, 1 << 20)
raw("mlock2", 325, place, 1 << 20, 1)
raw("mlockall", 151, 2)
raw("remap_file_pages", 216, place, 4096, 0, 0, 0)
