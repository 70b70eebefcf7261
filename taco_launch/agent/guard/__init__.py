"""Guard one host of a job: take slots, start and watch ranks, end every process of the job."""
