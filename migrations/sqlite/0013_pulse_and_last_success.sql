-- Whoever wants to know whether the database can be written writes a row and takes it away in the same transaction: of its own, so
-- that nobody waits for anybody.
create table pulse (
    id text primary key,
    at integer not null
);

-- When a run of a pipeline last succeeded is asked every few seconds, by every server.
create index runs_last_success on runs (pipeline, ended_at) where state = 'succeeded';
