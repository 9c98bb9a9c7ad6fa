"""The figures of the README: ``python -m benchmarks`` measures them all, on this machine."""
