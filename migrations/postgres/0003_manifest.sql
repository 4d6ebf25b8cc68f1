-- Whether publishing writes the table's manifest: recovery takes no definition.
alter table runs add column manifest boolean not null default false;
