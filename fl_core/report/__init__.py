"""Floor 4: figures and tables."""
