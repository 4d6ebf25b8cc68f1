-- The lowest migration that a version must know to work with this database. A later migration raises it only where it takes
-- away, or changes, what an earlier version relies on. Versions that do not know this column refuse what they do not know.
alter table meta add column oldest_schema bigint not null default 11;

-- The oldest version of a table that can still be told; what was before it is forgotten (--keep-runs-days).
alter table tables add column history_from bigint not null default 0 check (history_from between 0 and version);

create index history_by_version on history (pipeline, version);

-- Runs that ended, in the order in which they may be forgotten, and whether anything still refers to them.
create index runs_ended on runs (ended_at, id) where ended_at is not null;
create index catalog_by_run on catalog (run_id);
create index catalog_by_confirmer on catalog (confirmed_by);
