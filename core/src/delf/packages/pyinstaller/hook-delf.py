# ruff: noqa: N999
"""PyInstaller hook: pack delf with the installed plugins and libraries.

Plugins are found by their metadata, which is packed, too. Their sources are files beside the
program, because its sandboxes and readers of files run in a Python of their own.
"""

from importlib import metadata

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

datas = []
hiddenimports = []
module_collection_mode = {}

for distribution in metadata.distributions():
    name = distribution.metadata["Name"]
    modules = {e.module.partition(".")[0] for e in distribution.entry_points if e.group == "delf"}
    if not modules and name.startswith("delf-"):  # the core or a library
        modules = {"delf" if name == "delf-core" else name.replace("-", "_")}
    if not modules:
        continue
    datas += copy_metadata(name)
    for module in sorted(modules):
        datas += collect_data_files(module)
        hiddenimports += collect_submodules(module)
        module_collection_mode[module] = "pyz+py"
