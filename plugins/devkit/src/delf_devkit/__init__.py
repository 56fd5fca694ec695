"""Tools for authors of plugins: ``delf plugins new``; the test kit is :mod:`delf.testing`."""
