"""Methods: experts beyond values at query points, each in a folder that no other code imports.

The module `method` of a folder, to be read first, registers everything that the core needs: experts
(`bcmdist.learning.experts`), kinds of shared variables, likelihoods, predictors, and methods for errors of inputs
(`bcmdist.learning.input_methods`). Importing this package imports the `method` module of every folder; a registry does
so when asked for a name that it does not contain (`bcmdist.data.registry`).
"""

from importlib import import_module
from pkgutil import iter_modules

METHODS = tuple(sorted(found.name for found in iter_modules(__path__) if found.ispkg))
for _name in METHODS:
    import_module(f"{__name__}.{_name}.method")
