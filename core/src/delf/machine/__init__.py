"""The machine that delf runs on: files, threads and time zones."""
