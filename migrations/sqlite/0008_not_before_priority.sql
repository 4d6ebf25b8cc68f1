-- Among due runs those of a higher priority are claimed first. A run that is not to begin before a time takes its number then:
-- until then its sequence is below 0, it waits for nobody and nobody for it.
alter table runs add column priority integer not null default 0
    check (priority between -100 and 100 and (sequence > 0 or state not in ('running', 'committing')));
alter table runs add column not_before integer;

drop index runs_queued;
create index runs_queued on runs (priority desc, sequence) where state = 'queued' and sequence > 0;
create index runs_unnumbered on runs (due_at) where state = 'queued' and sequence < 0;
