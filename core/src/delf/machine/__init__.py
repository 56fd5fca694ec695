"""The local machine: files, threads and time zones."""
