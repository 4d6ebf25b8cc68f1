-- Listings of the runs since a time, of which there may be few among many.
create index runs_by_time on runs (created_at);
