# Generated: cd tests && python -m support.exported
from delf_devkit.testing import *
