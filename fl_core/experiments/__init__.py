"""Floor 3: run specifications, profiles, grids, the store, and one module per paper with its artifacts and claims."""
