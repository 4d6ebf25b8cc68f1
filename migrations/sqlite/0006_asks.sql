-- A run that has nothing to do succeeds as it is accepted, untried: its own id stands for the token that decided it.
-- SQLite changes no constraint, and to make the table anew would break what refers to it. What the constraint takes now it
-- took before, so the rows that there are stay right (https://www.sqlite.org/lang_altertable.html, 'other kinds of changes').
pragma writable_schema = on;

update sqlite_schema
set sql = replace(
    sql,
    'check (state not in (''running'', ''committing'', ''succeeded'') or attempts > 0)',
    'check (state not in (''running'', ''committing'', ''succeeded'') or attempts > 0 or (state = ''succeeded'' and decided_token = id))'
)
where type = 'table' and name = 'runs';

pragma writable_schema = reset;

-- What callers call their runs by.
create table run_labels (
    run_id text not null references runs (id),
    name text not null,
    text text not null,
    primary key (run_id, name)
) strict;

create index run_labels_by_text on run_labels (name, text, run_id);
