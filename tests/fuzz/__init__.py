"""Fuzzing: mutated inputs of every kind that dslint reads, and the fixers on mutated configs.

python -m tests.fuzz --seconds 120                     all targets in turn, by a fresh seed, which is printed
python -m tests.fuzz --target fixer --cases 50000      one target
TMPDIR=/dev/shm python -m tests.fuzz --target folders  in memory: on a disk half the time of a folder is its removal
python -m tests.fuzz --target fixer --seed 7 --case 12 one case again, with its input and its traceback
"""
