"""Starts ranks as real processes, runs cells on them, and frees them when they hang."""
