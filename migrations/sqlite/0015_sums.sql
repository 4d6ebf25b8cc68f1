-- What each table sums up to as of a version, kept by the transactions that change the catalog. Where it is of another version than the table's,
-- a server of the version before, which does not know it, has changed the table since: then it is not to be believed.
create table sums (
    pipeline text primary key references tables (pipeline),
    version integer not null check (version > 0),
    sum text not null check (json_valid(sum))
) strict;

-- Each submission asks by which definitions a table was written.
create index catalog_by_definition on catalog (pipeline, definition);
create index definitions_by_pipeline on definitions (pipeline, hash);
