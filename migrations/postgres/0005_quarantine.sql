-- The file of rows that a run's last attempt to get so far kept apart: path, rows, digest.
alter table runs add column quarantine json;
