"""Parts of set-up stages: what a stage in setup/stages is put together from."""
