"""Keep copies of code by their hashes, fetch them from other hosts, write them into job folders."""
