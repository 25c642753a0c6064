"""Methods: what goes beyond values at query points, each in a folder of its own that nothing else imports.

A method is a folder here whose `method` module, read first, registers all that the core needs of it: experts
(`bcmdist.learning.experts`), kinds of shared variables, likelihoods, predictors, methods for errors of inputs
(`bcmdist.learning.input_methods`). Importing this package imports the `method` of every folder; a registry does so when
a name is asked for that it does not have (`bcmdist.data.registry`).
"""

from importlib import import_module
from pkgutil import iter_modules

METHODS = tuple(sorted(found.name for found in iter_modules(__path__) if found.ispkg))
for _name in METHODS:
    import_module(f"{__name__}.{_name}.method")
