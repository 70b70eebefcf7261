"""Keep the state folder whole: wake the scheduler, index, count, recover and remove jobs."""
