-- Whose a message is: so a claim looks at the first one of each principal and host, and not through the backlog of any of them.
alter table outbox add column principal text not null default '';

update outbox set principal = (select r.principal from runs r where r.id = outbox.run_id) where state = 'pending';

-- A server of the version before does not say whose it is; it still claims over the index outbox_due.
create trigger outbox_of_principal after insert on outbox when new.principal = ''
begin
    update outbox set principal = (select r.principal from runs r where r.id = new.run_id) where position = new.position;
end;

create index outbox_by_recipient on outbox (principal, host, due_at, position) where state = 'pending';
