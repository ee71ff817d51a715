"""What a program or a script computes, without running it: values, Python, shell."""
