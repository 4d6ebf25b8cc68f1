-- Whether publishing writes the table's manifest: recovery takes no definition.
alter table runs add column manifest integer not null default 0 check (manifest in (0, 1));
