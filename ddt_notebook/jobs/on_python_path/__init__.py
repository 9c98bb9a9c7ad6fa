"""Modules that a job's folder gets a copy of, which `PYTHONPATH` brings into its processes.

They import nothing of ddt_notebook until they catch every error, since the job's Python may be
another one (torch has entry points from 2.5 on, which needs Python 3.9).
"""
