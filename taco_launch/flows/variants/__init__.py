"""The containers that jobs have beside the cluster's own: prepared before a job is queued, listed, removed when unused."""
