-- What the rows of a decided partition were put into, where they were merged: the sha256 of its file, or none where it was
-- not there. The decision holds only while the catalog says the same.
alter table run_partitions add column base text
    check (base is null or (outcome is not null and (base = 'none' or length(base) = 64)));
