"""What is known of a job: its arguments, its launch, its program, and the files that they come from. Records, no readers."""
