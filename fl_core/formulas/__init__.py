"""The papers' formulas as pure functions: one module per paper, each function with its equation number.

The derivation chapters prove these functions and the algorithms call them, so there is one source.
Nothing here trains, reads files or imports another part of `fl_core`; import the module that is needed,
for example ``from fl_core.formulas.fedasync import mix``.
"""
