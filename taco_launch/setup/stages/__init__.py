"""Plan each stage of set-up, one file each."""
