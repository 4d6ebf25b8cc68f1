set session_replication_role = replica;
create temporary table numbers as
select n, (lpad(to_hex(1700000000000 + n * 1000), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid as id,
    to_timestamp(1700000000 + n) as at, '{"rows": 1}'::json as document,
    case
        when n > {rows} - {queued} then 'queued'
        when n > {rows} - {queued} - 3 then 'running'
        when n > {rows} - {queued} - 5 then 'committing'
        when n % 50 = 0 then 'failed'
        when n % 50 = 1 then 'cancelled'
        else 'succeeded'
    end as state
from generate_series(1::bigint, {rows}) as n;
