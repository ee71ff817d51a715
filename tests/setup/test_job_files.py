"""Job files of platforms: the program, the config, the ranks and the machines that people derived, against those that are read."""

from __future__ import annotations

import pytest

from tests.setup.folder import Folder
from tests.setup.job_files.reading import KINDS, differences, expected, lay_out, read

CASES = [(kind, name) for kind in KINDS for name in expected(kind)]

NOT_READ = {
    "sagemaker/10-one-process.py": 2,  # a process without a launcher, which may start ranks itself
    "determined/20-default-slots.yaml": 1,  # one slot is the default of Determined
    "skypilot/04-hostfile.yaml": 2,  # a loop over the addresses writes the hostfile
    "skypilot/12-counted.yaml": 2,  # the addresses are counted by wc
}
"""How much of a job file stays unknown, where something does."""


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}-{name}" for kind, name in CASES])
def test_what_a_job_starts_is_read(folder: Folder, kind: str, name: str) -> None:
    wanted = expected(kind)[name]
    target = lay_out(kind, name, folder.path)
    found = list(differences(wanted, read(folder.path, target, {one.program for one in wanted})))
    assert [one for *one, wrong in found if wrong] == []
    assert len(found) == NOT_READ.get(f"{kind}/{name}", 0), found
