"""What is wrong with a config: a folder per chapter, a file per topic, a function per rule.

A rule's folder follows from the first digit of its code, and `dslint rule DS501` prints the file. `CONTRIBUTING.md` shows one being written.
"""
