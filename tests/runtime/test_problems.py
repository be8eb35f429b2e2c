"""Failures that a person can mend carry an exit code for the shell."""

import pytest

from runtime.problems import BadSetting, Problem


@pytest.mark.parametrize(("problem", "exit_code"), [(Problem, 1), (BadSetting, 2)])
def test_a_problem_has_words_and_a_failing_exit_code(problem: type[Problem], exit_code: int) -> None:
    raised = problem("the disk is full. Delete something.")
    assert str(raised) == "the disk is full. Delete something."
    assert raised.exit_code == exit_code
