"""One module for each exercise, named like it, that defines ``EXERCISE``."""
