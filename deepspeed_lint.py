"""Starts dslint, and says so clearly if another package of the name `dslint` hides it.

The distribution deepspeed-lint provides the package and the command `dslint`. On package indexes a different project is named dslint; if
both are installed in one environment, the later installation overwrites files of the earlier one.
"""

import sys

OTHER = """\
dslint: the package "dslint" that Python imports is not the linter for DeepSpeed configs, or its files are incomplete.
A different project, a linter for datasets of speech, has the name dslint on package indexes. One environment cannot hold both:
  pip uninstall dslint
  pip install --force-reinstall --no-deps deepspeed-lint"""


def main() -> None:
    """The console scripts `dslint` and `deepspeed-lint`. Exits with 2 if the package is another project's."""
    import dslint

    if getattr(dslint, "__distribution__", None) == "deepspeed-lint":
        from dslint.cli import main as run

        run()
    else:
        print(OTHER, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
