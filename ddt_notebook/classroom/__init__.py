"""Exercises: a training cell with hidden faults, hints, and a grader of its behaviour.

An exercise is a module in ``exercises/``, named like the exercise, that defines ``EXERCISE``. The
grader runs a student's cell on fresh ranks with other data, and compares what happened with what it
computes itself. It never reads the text of the cell.
"""
