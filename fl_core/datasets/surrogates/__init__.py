"""Generated stand-ins for data sets that may not be at hand; each module defines ``SURROGATES``."""
