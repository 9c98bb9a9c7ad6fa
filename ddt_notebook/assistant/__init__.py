"""The assistant of ``%ddt_debug``: it leads from what a user sees to a symptom, a cause and a fix.

`state` holds where the user is, `questions` chooses what to ask, `checks` answers questions with
the last run or a short test, `view` and `panel` show the state, and `assistant` connects them.
"""
