-- Who may do what. A token's secret is not kept, only its digest. While there is any row, every request needs a token; so what
-- has ended stays, and is forgotten only where another is made.
create table tokens (
    id text primary key,
    name text not null,
    principal text not null,
    digest text not null check (length(digest) = 64),
    scope text not null check (scope in ('read', 'run', 'admin')),
    pipelines text,
    created_at integer not null,
    expires_at integer,
    revoked_at integer,
    constraint admins_see_all_pipelines check (scope <> 'admin' or pipelines is null)
) strict;

create index runs_by_principal on runs (principal, id);
