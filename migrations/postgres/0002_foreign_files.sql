-- What publishing a decided partition does about data files of others: recovery takes no definition.
alter table run_partitions add column foreign_files text not null default 'fail' check (foreign_files in ('fail', 'replace'));
