-- Where many runs of other tables have come to their time, whoever looks for those of one does not pass over them.
create index runs_unnumbered_of_pipeline on runs (pipeline, due_at, sequence desc) where state = 'queued' and sequence < 0;
