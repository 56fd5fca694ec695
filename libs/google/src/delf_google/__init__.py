"""What delf's plugins for Google share; :mod:`delf_google.connection` is what they build on."""
