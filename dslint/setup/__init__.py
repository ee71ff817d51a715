"""The whole of a training: who launches it, with which arguments, and which DeepSpeed config they lead to.

Files are read as data; nothing is executed. `gather` makes `Setup`s of a file or a command, and `lint` has them judged.
"""
