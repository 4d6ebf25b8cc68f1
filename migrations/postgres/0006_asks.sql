-- A run that has nothing to do succeeds as it is accepted, untried: its own id stands for the token that decided it.
alter table runs drop constraint held_runs_were_tried;
alter table runs add constraint held_runs_were_tried
    check (state not in ('running', 'committing', 'succeeded') or attempts > 0 or (state = 'succeeded' and decided_token = id));
