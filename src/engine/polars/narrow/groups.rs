//! The groups: a hash table in shards, each under a lock of its own, so that there is one of each group however many threads add
//! rows. Threads gather rows in small tables of theirs first, which stay in the cache and find the few groups of neighbouring rows,
//! and bring whole groups to the shards.

use super::Definition;
use super::accumulator;
use super::batch::{Batch, Counts, Judge, Words};
use super::cells::Cells;
use super::table::{Group, Layout, Table};
use ::polars::prelude as pl;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARD_BITS: u32 = 6;
/// How many groups a thread gathers: about what its cache holds.
const GATHERED_GROUPS: usize = 1 << 13;

/// All groups, and the counts of rows by what they were judged to be.
pub(super) struct Groups {
    layout: Layout,
    shards: Vec<Mutex<Table>>,
    /// Tables that no thread adds to right now.
    gathered: Mutex<Vec<Table>>,
    counts: Mutex<BTreeMap<(i32, Vec<i64>), u64>>,
    /// Nobody can choose keys that meet in the table.
    seed: u64,
}

impl Groups {
    /// None yet.
    pub(super) fn new(definition: &Definition) -> Self {
        let accumulators = definition.measures.iter().filter_map(|measure| accumulator(&measure.aggregate));
        let (values, dimensions) = (definition.partition.columns().len(), definition.dimensions.len());
        Self {
            layout: Layout::new(values, dimensions, accumulators.collect()),
            shards: (0..1 << SHARD_BITS).map(|_| Mutex::default()).collect(),
            gathered: Mutex::default(),
            counts: Mutex::default(),
            seed: RandomState::new().hash_one(0),
        }
    }

    /// Judges the rows of a batch, counts all of them, and adds those in scope to their groups.
    pub(super) fn add(&self, judge: &Judge, rows: &pl::DataFrame) -> pl::PolarsResult<()> {
        let batch = Batch::judged(judge, rows)?;
        self.count(&batch.counts);
        match Cells::of(&batch, &self.layout.accumulators) {
            Some(cells) => self.add_cells(&cells),
            None => self.add_rows(&batch),
        }
        Ok(())
    }

    fn add_cells(&self, cells: &Cells) {
        let mut by_shard: Vec<Vec<(u32, u32, usize)>> = vec![Vec::new(); self.shards.len()];
        let mut keys = Vec::new();
        cells.groups(|cell, key| {
            let hash = upper_half(key.iter().fold(self.seed, |hash, word| mixed(hash ^ word.cast_unsigned())));
            by_shard[shard_of(hash)].push((hash, cell, keys.len()));
            keys.extend_from_slice(key);
        });
        for (of_shard, shard) in by_shard.iter().zip(&self.shards).filter(|(of_shard, _)| !of_shard.is_empty()) {
            let mut shard = locked(shard);
            for (hash, cell, start) in of_shard {
                let more = |number| cells.more(number, *cell);
                shard.put(&self.layout, *hash, |at| keys[start + at].cast_unsigned(), cells.rows(*cell), more);
            }
        }
    }

    fn add_rows(&self, batch: &Batch) {
        let none = vec![0; if batch.nulls.is_none() { batch.height } else { 0 }];
        let keys = batch.keys.iter().map(Words::values);
        let keys: Vec<&[i64]> = keys.chain(Some(batch.nulls.as_ref().map_or(&none[..], Words::values))).collect();
        let rows: Vec<u32> = batch.rows.iter().cloned().flatten().map(|row| row as u32).collect();
        let hashes = hashes(&keys, &rows, self.seed);
        let mut table = locked(&self.gathered).pop().unwrap_or_default();
        // No more rows than there is room for groups.
        for (rows, hashes) in rows.chunks(GATHERED_GROUPS).zip(hashes.chunks(GATHERED_GROUPS)) {
            table.add(&self.layout, &keys, &batch.numbers, rows, hashes);
            if table.len() >= GATHERED_GROUPS {
                self.bring(&mut table);
            }
        }
        locked(&self.gathered).push(table);
    }

    pub(super) fn count(&self, counts: &Counts) {
        let mut all = locked(&self.counts);
        for (what, rows) in counts {
            *all.entry(what.clone()).or_default() += rows;
        }
    }

    /// Brings the groups of a table to their shards.
    fn bring(&self, table: &mut Table) {
        let mut groups: Vec<(usize, usize)> =
            table.hashes().iter().enumerate().map(|(group, hash)| (shard_of(*hash), group)).collect();
        groups.sort_unstable();
        for of_shard in groups.chunk_by(|a, b| a.0 == b.0) {
            let Some(shard) = of_shard.first().and_then(|(shard, _)| self.shards.get(*shard)) else { continue };
            let mut shard = locked(shard);
            for (_, group) in of_shard {
                shard.merge(&self.layout, table, *group);
            }
        }
        table.clear();
    }

    /// How many rows were judged to be what (a code of a verdict), by their partition values.
    pub(super) fn counts(&self) -> Counts {
        locked(&self.counts).iter().map(|(what, rows)| (what.clone(), *rows)).collect()
    }

    /// Takes the groups, when no rows come any more.
    pub(super) fn take(&self) -> Taken {
        for mut table in std::mem::take(&mut *locked(&self.gathered)) {
            self.bring(&mut table);
        }
        let tables = self.shards.iter().map(|shard| std::mem::take(&mut *locked(shard))).collect();
        Taken { layout: self.layout.clone(), tables }
    }
}

/// Groups that nothing is added to any more.
pub(super) struct Taken {
    layout: Layout,
    tables: Vec<Table>,
}

/// Where a group is: in which table, and there.
pub(super) type Place = (u32, u32);

impl Taken {
    pub(super) fn all(&self) -> impl Iterator<Item = (Place, Group<'_>)> {
        let of_table =
            |(at, table)| (0..).zip(Table::groups(table, &self.layout)).map(move |(group, of)| ((at, group), of));
        (0..).zip(&self.tables).flat_map(of_table)
    }

    pub(super) fn group(&self, (table, group): Place) -> Group<'_> {
        self.tables[table as usize].of(&self.layout, group as usize)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn shard_of(hash: u32) -> usize {
    (hash >> (u32::BITS - SHARD_BITS)) as usize
}

/// The hashes of the keys of rows.
fn hashes(keys: &[&[i64]], rows: &[u32], seed: u64) -> Vec<u32> {
    let mut hashes = vec![seed; rows.len()];
    for values in keys {
        for (hash, row) in hashes.iter_mut().zip(rows) {
            *hash = mixed(*hash ^ values[*row as usize].cast_unsigned());
        }
    }
    hashes.into_iter().map(upper_half).collect()
}

fn upper_half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Both halves of a product, so that each bit depends on all.
#[inline]
fn mixed(value: u64) -> u64 {
    const ODD: u128 = 0x9E37_79B9_7F4A_7C15;
    let product = u128::from(value) * ODD;
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

    use super::super::super::query::{BAD, dimension_column, measure_column};
    use super::super::super::scope::value_name;
    use super::super::KEPT;
    use super::*;
    use ::polars::prelude::{IntoColumn, NewChunkedArray};

    #[test]
    fn hashes_spread_neighbouring_keys_over_shards_and_entries() {
        let mut shards = [0usize; 1 << SHARD_BITS];
        let mut low = vec![0usize; 1 << 12];
        for key in 0..1u64 << 16 {
            let hash = (mixed(mixed(7 ^ (key >> 8)) ^ ((key & 255) * 3_600_000_000)) >> 32) as u32;
            shards[shard_of(hash)] += 1;
            low[hash as usize & 0xFFF] += 1;
        }
        assert!(shards.iter().all(|keys| (700..1400).contains(keys)), "{shards:?}");
        assert!(low.iter().all(|keys| *keys < 60), "{:?}", low.iter().max());
    }

    /// The groups of rows, by key: how many rows, and of each number the count, the sum and the extreme.
    type Found = BTreeMap<Vec<Option<i64>>, (u64, Vec<(u64, i128, Option<i64>)>)>;

    fn found(groups: &Groups) -> Found {
        let taken = groups.take();
        let of = |group: Group<'_>| {
            let key = (0..1).map(|at| Some(group.value(at))).chain((0..2).map(|at| group.dimension(at))).collect();
            let numbers = (0..4).map(|at| (group.count(at), group.sum(at), group.extreme(at)));
            // A sum has no extreme and the others no sum.
            let numbers = numbers.enumerate().map(|(at, (count, sum, extreme))| match at {
                0 => (count, sum, None),
                3 => (count, 0, None),
                _ => (count, 0, extreme),
            });
            (key, (group.rows(), numbers.collect()))
        };
        taken.all().map(|(_, group)| of(group)).collect()
    }

    /// Rows whose times are of `hours` hours, far from each other where they are `scattered`.
    fn frame(rows: usize, hours: u64, scattered: bool, largest: i64, nulls: u64) -> pl::DataFrame {
        let mut seed = 3u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut columns = vec![Vec::new(); 6];
        for row in 0..rows as u64 {
            let hour = if scattered { next(hours) } else { row * hours / rows as u64 };
            let number = i64::try_from(next(1_000_000)).unwrap() - 500_000;
            let values =
                [i64::from(hour > hours / 2), hour as i64 * 3_600_000_000, next(40) as i64, number, number, number];
            for (at, (column, value)) in columns.iter_mut().zip(values).enumerate() {
                let value = if at > 2 && row == 7 { largest } else { value };
                column.push((at == 0 || nulls == 0 || next(nulls) > 0).then_some(value));
            }
        }
        let names = [value_name(0), dimension_column(0), dimension_column(1)].into_iter();
        let names = names.chain((0..3).map(|at| measure_column(at, "")));
        let columns = names.zip(columns).map(|(name, of)| pl::Int64Chunked::from_iter_options(name, of.into_iter()));
        let mut columns: Vec<pl::Column> = columns.map(IntoColumn::into_column).collect();
        let flags = (0..rows).map(|row| Some(row % 3 > 0));
        columns.push(pl::BooleanChunked::from_iter_options(measure_column(3, ""), flags).into_column());
        let kept = (0..rows).map(|row| if row % 50 == 9 { None } else { Some(row % 50 != 11) });
        columns.push(pl::BooleanChunked::from_iter_options(KEPT.into(), kept).into_column());
        let bad = (0..rows).map(|row| Some(row % 41 == 40));
        columns.push(pl::BooleanChunked::from_iter_options(BAD.into(), bad).into_column());
        pl::DataFrame::new(rows, columns).unwrap()
    }

    #[test]
    fn cells_give_the_groups_that_rows_give_one_by_one() {
        let text = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a\"\n[source.columns]\np = \"int64\"\n\
                    at = \"datetime\"\nzone = \"int64\"\nx = \"int64\"\n[partition]\np = { value_of = \"p\" }\n\
                    [dimensions]\nat = \"at\"\nzone = \"zone\"\n[measures]\na = \"sum(x)\"\nb = \"min(x)\"\n\
                    c = \"max(x)\"\nd = \"count(x)\"\n";
        let definition = crate::pipeline::parse(text, "test").unwrap();
        let judge = Judge::over(&definition);
        // Rows, hours, scattered, the largest number, one null in how many: and whether they fit a box.
        let cases = [
            (20_000, 24, false, 7, 0, true),
            (20_000, 24, false, 7, 40, true),
            (20_000, 24, false, 7, 9, false),
            (20_000, 24, true, 7, 0, false),
            (20_000, 500, false, 7, 0, false),
            (20_000, 24, false, i64::MAX / 3, 0, false),
            (20_000, 24, false, i64::MIN, 0, false),
            (10, 2, false, 7, 0, false),
            (0, 1, false, 7, 0, true),
        ];
        for (rows, hours, scattered, largest, nulls, fits) in cases {
            let frame = frame(rows, hours, scattered, largest, nulls);
            let (by_cells, by_rows) = (Groups::new(&definition), Groups::new(&definition));
            let batch = Batch::judged(&judge, &frame).unwrap();
            let what = (rows, hours, scattered, largest, nulls);
            assert_eq!(Cells::of(&batch, &by_cells.layout.accumulators).is_some(), fits, "{what:?}");
            by_cells.add(&judge, &frame).unwrap();
            by_cells.add(&judge, &frame.slice(3, rows / 2)).unwrap();
            by_rows.add_rows(&batch);
            by_rows.add_rows(&Batch::judged(&judge, &frame.slice(3, rows / 2)).unwrap());
            let found = found(&by_cells);
            assert_eq!(found, self::found(&by_rows), "{what:?}");
            assert_eq!(found.is_empty(), rows == 0);
            let counted: u64 = by_cells.counts().iter().map(|(_, rows)| rows).sum();
            assert_eq!(counted, (rows + frame.slice(3, rows / 2).height()) as u64, "{what:?}");
            let taken: u64 = found.values().map(|(rows, _)| rows).sum();
            assert_eq!(
                taken,
                by_cells.counts().iter().filter(|((code, _), _)| code % 8 == 4).map(|c| c.1).sum::<u64>()
            );
        }
    }
}
