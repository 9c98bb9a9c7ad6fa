"""Reads Python programs: what each rank does, as far as the source shows it.

A program is one or several documents: cells of a notebook, or files. Nothing in here runs any of
it. Rules, corrections and lint ask this package; they do not walk syntax trees for themselves.
"""
