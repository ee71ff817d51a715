"""The project's name and addresses, and how fresh its data are.

An address is "" until the project has it; nothing else in the repository holds one. They feed the metadata of the distribution, the links
of README on a package index, the SARIF report, the links from findings to pages of rules, the `$id` of the JSON Schema, and the site.
"""

DISTRIBUTION = "deepspeed-lint"
"""The name on package indexes. There, `dslint` is another project: a linter for datasets of speech."""

REPOSITORY = ""
"""The URL of the repository, without a slash at its end."""

SITE = ""
"""The URL of the published documentation, without a slash at its end."""

COMPARED = "2026-11-22"
"""The day on which dslint's data were last compared with the newest releases of DeepSpeed and of the libraries below."""

COMPARED_WITH = {"torch": "2.13", "transformers": "5.23", "Accelerate": "1.15", "Lightning": "2.6"}
"""The libraries and releases that dslint was compared with on that day, besides DeepSpeed."""


def rule_url(code: str) -> str | None:
    """The page of a rule on the site, if the site has an address."""
    return f"{SITE}/rules/{code}.html" if SITE else None


def install_command(extra: str) -> str:
    """The command that adds an extra of dslint. After an installation from a clone it works, too: pip takes the installed release."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'
