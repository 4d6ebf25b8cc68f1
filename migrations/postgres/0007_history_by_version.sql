-- Which version a run made, and which a table had at a time.
create index history_by_run on history (run_id, version);
create index history_by_time on history (pipeline, committed_at, version);
