"""Hold the program that a measurement of hosts runs on each of them; a job gets this folder as its code."""
