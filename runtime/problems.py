"""Failures that a person can mend.

A `Problem` carries one line that says what is wrong and what to do about it. Command lines print that line,
without a traceback, and exit with `exit_code`.
"""


class Problem(Exception):
    """Something is wrong that the person at the keyboard can mend."""

    exit_code = 1


class BadSetting(Problem):
    """An environment variable has a value that cannot be used."""

    exit_code = 2
