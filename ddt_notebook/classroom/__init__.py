"""Exercises: a training cell with hidden faults, hints, and a grader that looks at behaviour.

An exercise is one module in ``exercises/``, named like the exercise, that defines ``EXERCISE``. The
grader runs a student's cell on fresh ranks with data of its own and compares what happened with
what it computes itself; the text of the cell is never read.
"""
