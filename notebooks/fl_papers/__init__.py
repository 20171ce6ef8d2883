"""One folder per paper."""
