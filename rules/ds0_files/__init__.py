"""DS0: the file itself: syntax, encoding, ignore comments."""
