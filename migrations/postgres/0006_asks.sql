-- A run that has nothing to do succeeds as it is accepted, untried: its own id stands for the token that decided it.
alter table runs drop constraint held_runs_were_tried;
alter table runs add constraint held_runs_were_tried
    check (state not in ('running', 'committing', 'succeeded') or attempts > 0 or (state = 'succeeded' and decided_token = id));

-- What callers call their runs by.
create table run_labels (
    run_id uuid not null references runs (id),
    name text collate "C" not null,
    text text collate "C" not null,
    primary key (run_id, name)
);

create index run_labels_by_text on run_labels (name, text, run_id);
