"""Tests of the documentation: its commands run, its links resolve, the names in it exist in the code.

Conventions of a page:

    ```bash                      commands to paste, without prompts; all of a page run in one shell, from the root of a separate checkout,
                                 where the first that fails ends it. On purpose: `seatrial run PLAN || echo "exit code $?"`
    <!-- not run: WHY -->        on the line above such a block where it cannot be run here; `shown by tests/a/test_b.py::test_c` names what
                                 covers it instead, and must exist
    ```python title=train.py     a file that the reader writes; it is written before the commands that follow
    ```text                      output or a drawing
    ```yaml                      without a title: a plan, or a part of one

Inline code that begins with `seatrial`, `make` or `python` names verbs, options, targets and files that exist; words in CAPITALS are
placeholders. Files of the repository are named by path, from the root or from src/seatrial. Links are relative; docs/README.md lists
every page.
"""
