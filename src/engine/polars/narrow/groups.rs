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
        let mut groups = Vec::new();
        cells.groups(|cell, key| {
            let hash = upper_half(key.iter().fold(self.seed, |hash, word| mixed(hash ^ word.cast_unsigned())));
            groups.push((hash, cell));
        });
        // Shard by shard.
        groups.sort_unstable();
        let mut key = Vec::new();
        for of_shard in groups.chunk_by(|a, b| shard_of(a.0) == shard_of(b.0)) {
            let Some(shard) = of_shard.first().and_then(|group| self.shards.get(shard_of(group.0))) else { continue };
            let mut shard = locked(shard);
            for (hash, cell) in of_shard {
                cells.key(*cell, &mut key);
                let more = |number| cells.more(number, *cell);
                shard.put(&self.layout, *hash, |at| key[at].cast_unsigned(), cells.rows(*cell), more);
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

    fn count(&self, counts: &Counts) {
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
    use super::*;

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
}
