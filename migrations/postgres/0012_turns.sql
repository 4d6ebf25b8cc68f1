-- Principals take turns: the one whose last run began the longest ago is claimed for first. Servers of the version before, which
-- know the principal `default` alone, still claim over the index runs_queued.
create table turns (
    principal text not null primary key,
    taken bigint not null default 0
);

insert into turns (principal) select 'default' union select principal from runs;

create index turns_in_order on turns (taken, principal);

create index runs_queued_by_turn on runs (principal, priority desc, sequence) where state = 'queued' and sequence > 0;
create index runs_queued_of_principal on runs (principal) where state = 'queued';
