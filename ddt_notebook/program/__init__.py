"""Reads Python programs and finds what each rank does, as far as the source shows it.

A program is one or several documents: cells of a notebook, or files. This package never runs it.
Rules, corrections and lint ask this package; they do not walk syntax trees themselves.
"""
