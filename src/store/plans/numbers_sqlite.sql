create temporary table numbers as
with recursive counted(n) as (select 1 union all select n + 1 from counted where n < {rows})
select n, printf('%08x-%04x-7000-8000-%012x', 1700000000000 + n * 1000 >> 16, 1700000000000 + n * 1000 & 65535, n) as id,
    (1700000000 + n) * 1000000 as at, '{"rows": 1}' as document,
    case
        when n > {rows} - {queued} then 'queued'
        when n > {rows} - {queued} - 3 then 'running'
        when n > {rows} - {queued} - 5 then 'committing'
        when n % 50 = 0 then 'failed'
        when n % 50 = 1 then 'cancelled'
        else 'succeeded'
    end as state
from counted;
