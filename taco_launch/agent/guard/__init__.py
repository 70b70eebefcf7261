"""One guard per host of a job: it takes the slots, starts and watches the ranks, and ends all that is the job's."""
