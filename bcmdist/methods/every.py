"""All methods: importing this module imports the `method` module of every folder, which registers what the core needs.

A registry does so when asked for a name that it does not contain (`bcmdist.data.registry`).
"""

from importlib import import_module

from bcmdist.methods import METHODS

for _name in METHODS:
    import_module(f"bcmdist.methods.{_name}.method")
