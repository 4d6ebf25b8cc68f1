//! The statements about what tables sum up to, in Postgres's dialect.

use crate::store::statements::SumStatements;

pub(super) const SUMS: SumStatements = SumStatements {
    lock_table: r"select version from tables where pipeline = $1 for update",
    changes: r"
        select p.content as becomes, c.content as was
        from run_partitions p
        left join catalog c on c.pipeline = $2 and c.partition = p.partition
        where p.run_id = $1
            and (p.outcome in ('created', 'replaced', 'cleared') or (p.outcome = 'unchanged' and (c.definition <> $4 or c.content::text <> p.content::text)))
            and ($3::json is null or p.partition in (select json_array_elements_text($3::json)))",
    kept: r"select version, sum from sums where pipeline = $1",
    keep: r"
        insert into sums (pipeline, version, sum) values ($1, $2, $3::json)
        on conflict (pipeline) do update set version = excluded.version, sum = excluded.sum",
};
