"""What starts agents on hosts: one module for each engine."""
