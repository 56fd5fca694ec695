"""Join descriptors in the kernel, past what is read and written."""

reader, writer = posix.pipe()
fd = posix.open(sys.modules["json"].__file__, posix.O_RDONLY)
raw("splice", 275, fd, None, writer, None, 4096, 0)
raw("tee", 276, reader, writer, 4096, 0)
raw("vmsplice", 278, writer, (ctypes.c_size_t * 2)(), 1, 0)
raw("copy_file_range to what is only read", 326, fd, None, fd, None, 4096, 0)
raw("sendfile to what is only read", 40, fd, fd, None, 4096)
raw("fallocate", 285, fd, 0, 0, 4096)
raw("ftruncate", 77, fd, 0)
