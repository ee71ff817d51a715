"""Job files of platforms beside what they start, which people derived from the documentation of the platform: see `test_job_files.py`."""
