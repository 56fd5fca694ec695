"""The machine that delf runs on: files, threads, descriptors and time zones."""
