"""What authors of plugins use: ``delf plugins new``; the test kit is :mod:`delf.testing`."""
