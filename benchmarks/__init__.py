"""The figures of README and guide: ``python -m benchmarks`` measures them on this machine."""
