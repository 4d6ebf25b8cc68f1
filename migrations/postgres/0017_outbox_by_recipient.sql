-- Whose a message is: so a claim looks at the first one of each principal and host, and not through the backlog of any of them.
alter table outbox add column principal text collate "C" not null default '';

update outbox set principal = (select r.principal from runs r where r.id = outbox.run_id) where state = 'pending';

-- A server of the version before does not say whose it is; it still claims over the index outbox_due.
create function say_whose_message() returns trigger language plpgsql as $$
begin
    new.principal := (select r.principal from runs r where r.id = new.run_id);
    return new;
end
$$;

create trigger outbox_of_principal before insert on outbox
for each row when (new.principal = '') execute function say_whose_message();

create index outbox_by_recipient on outbox (principal, host, due_at, position) where state = 'pending';
