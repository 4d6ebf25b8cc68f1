-- Who may do what. A token's secret is not kept, only its digest. While there is any row, every request needs a token; so what
-- has ended stays, and is forgotten only where another is made.
create table tokens (
    id text collate "C" primary key,
    name text not null,
    principal text collate "C" not null,
    digest text not null check (length(digest) = 64),
    scope text not null check (scope in ('read', 'run', 'admin')),
    pipelines json,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    constraint admins_see_all_pipelines check (scope <> 'admin' or pipelines is null)
);

create index runs_by_principal on runs (principal, id);
