"""Wake whoever waits at the same place of a file: a bell between guests."""

mmap = real_import("mmap")
fd = posix.open(sys.modules["json"].__file__, posix.O_RDONLY)
page = mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
place = ctypes.c_char_p(page[:1])
for kind in (1, 3, 4, 5, 10):
    raw(f"shared futex {kind}", 202, place, kind, 1, 0, place, -1)
