"""Methods: experts beyond values at query points, each in a folder that no other code imports.

The module `method` of a folder, to be read first, registers everything that the core needs: experts
(`bcmdist.learning.experts`), kinds of shared variables, likelihoods and predictors. `bcmdist.methods.every` imports
those of all folders. The module `options` of a folder declares the options that its experts read; importing this
package imports these, which are light, so that the command line knows all options without loading a method.
"""

from importlib import import_module
from pkgutil import iter_modules

METHODS = tuple(sorted(found.name for found in iter_modules(__path__) if found.ispkg))
for _name in METHODS:
    import_module(f"{__name__}.{_name}.options")
