"""The files around a config: the launch command, the training arguments, the program, and the DeepSpeed config they name.

Files are read as data; nothing is executed. `gather` reads a file or a command into `Setup`s, and `lint` checks them.
"""
