"""The settings of a project: ``delf.toml``, ``.env``, ``DELF_*`` variables and ``--set``."""
