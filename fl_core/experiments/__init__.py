"""Floor 3: run specifications, profiles, grids, the store, claims and their judge."""

import fl_core.experiments.spec  # noqa: F401  # first: what it then loads of somebody's own may import any of the others
