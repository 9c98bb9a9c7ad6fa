"""The figures of the README and of the guide: ``python -m benchmarks`` measures them all, on this machine."""
