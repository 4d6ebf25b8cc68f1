//! Slices: the parts of a run that are computed one after the other, so that a finished one outlives a crash.

use super::{PlannedFile, Serves, SourcePlan};
use crate::partition::{PartitionKey, PartitionValue};
use crate::run::Scope;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many times the bytes that a slice reads again it reads for the first time, at least.
const NEW_PER_AGAIN: u64 = 4;

/// A part of a run: some of its partitions, with the files that they need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// The partitions of the slice; `full` where the files say which they are.
    pub scope: Scope,
    /// Their files.
    pub files: Vec<PlannedFile>,
}

/// What is not cut further: a partition, or in `full` all those of one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unit<'a> {
    Key(&'a PartitionKey),
    Times(&'a [Option<PartitionValue>]),
}

impl SourcePlan {
    /// Cuts the plan of a run over `scope` into slices by the files that partitions share. `bytes` are the files' sizes.
    ///
    /// A slice ends where the files that it is the first to read have `bound` bytes, and four times those that slices
    /// before it have read too (neighbours): so slices cost a quarter more reading at most. A run of which every partition
    /// needs the same file is one slice.
    pub fn slices(&self, scope: &Scope, bytes: &[u64], bound: u64) -> Vec<Slice> {
        let whole = || vec![Slice { scope: scope.clone(), files: self.files.clone() }];
        let Some(groups) = self.groups(scope) else { return whole() };
        let mut cuts: Vec<Vec<Unit<'_>>> = Vec::new();
        let mut units = Vec::new();
        let mut reading = Reading::of(bytes);
        for (needed, mut group) in groups {
            units.append(&mut group);
            needed.into_iter().for_each(|file| reading.takes(file));
            if reading.new >= bound && reading.is_mostly_new() {
                reading.ends();
                cuts.push(std::mem::take(&mut units));
            }
        }
        match cuts.last_mut() {
            // The rest, where it would read too much again.
            Some(last) if !reading.is_mostly_new() => last.append(&mut units),
            _ if units.is_empty() => {}
            _ => cuts.push(units),
        }
        if cuts.len() < 2 {
            return whole();
        }
        self.dealt_out(cuts)
    }

    /// The units by the files that they need, in the order of the files; none where a file is everybody's.
    fn groups<'a>(&'a self, scope: &'a Scope) -> Option<BTreeMap<Vec<usize>, Vec<Unit<'a>>>> {
        let mut needed: BTreeMap<Unit<'_>, Vec<usize>> = BTreeMap::new();
        if let Scope::Partitions(keys) = scope {
            needed.extend(keys.iter().map(|key| (Unit::Key(key), Vec::new())));
        }
        for (at, file) in self.files.iter().enumerate() {
            for unit in units(&file.serves)? {
                needed.entry(unit).or_default().push(at);
            }
        }
        let mut groups: BTreeMap<Vec<usize>, Vec<Unit<'_>>> = BTreeMap::new();
        for (unit, files) in needed {
            groups.entry(files).or_default().push(unit);
        }
        Some(groups)
    }

    /// A slice of each of these sets of units.
    fn dealt_out(&self, cuts: Vec<Vec<Unit<'_>>>) -> Vec<Slice> {
        let mut slices = Vec::with_capacity(cuts.len());
        let mut of_unit: BTreeMap<Unit<'_>, usize> = BTreeMap::new();
        for (at, mut units) in cuts.into_iter().enumerate() {
            units.sort_unstable();
            let keys: Vec<PartitionKey> = units.iter().filter_map(Unit::key).collect();
            let scope = if keys.is_empty() { Scope::Full } else { Scope::Partitions(keys) };
            slices.push(Slice { scope, files: Vec::new() });
            of_unit.extend(units.into_iter().map(|unit| (unit, at)));
        }
        for file in &self.files {
            let mut served: BTreeMap<usize, Vec<Unit<'_>>> = BTreeMap::new();
            for unit in units(&file.serves).into_iter().flatten() {
                if let Some(slice) = of_unit.get(&unit) {
                    served.entry(*slice).or_default().push(unit);
                }
            }
            for (at, units) in served {
                if let Some(slice) = slices.get_mut(at) {
                    slice.files.push(PlannedFile { path: file.path.clone(), serves: serves(&units) });
                }
            }
        }
        slices
    }
}

/// What the slice under way reads.
struct Reading<'a> {
    bytes: &'a [u64],
    /// The slice that was the last to take each file.
    taken_by: Vec<Option<usize>>,
    slice: usize,
    /// The bytes of the files that it is the first to read, and of those that are read again.
    new: u64,
    again: u64,
}

impl<'a> Reading<'a> {
    fn of(bytes: &'a [u64]) -> Self {
        Self { bytes, taken_by: vec![None; bytes.len()], slice: 0, new: 0, again: 0 }
    }

    fn takes(&mut self, file: usize) {
        let (Some(bytes), Some(taken_by)) = (self.bytes.get(file), self.taken_by.get_mut(file)) else { return };
        match taken_by.replace(self.slice) {
            None => self.new += bytes,
            Some(slice) if slice < self.slice => self.again += bytes,
            Some(_) => {}
        }
    }

    fn is_mostly_new(&self) -> bool {
        self.new >= self.again.saturating_mul(NEW_PER_AGAIN)
    }

    /// What is taken from now on is the next slice's.
    fn ends(&mut self) {
        self.slice += 1;
        (self.new, self.again) = (0, 0);
    }
}

impl Unit<'_> {
    fn key(&self) -> Option<PartitionKey> {
        match self {
            Unit::Key(key) => Some((*key).clone()),
            Unit::Times(_) => None,
        }
    }

    fn times(&self) -> Option<Vec<Option<PartitionValue>>> {
        match self {
            Unit::Times(times) => Some(times.to_vec()),
            Unit::Key(_) => None,
        }
    }
}

/// What a file serves, one by one; none where it serves all.
fn units(serves: &Serves) -> Option<Vec<Unit<'_>>> {
    match serves {
        Serves::Scope => None,
        Serves::Keys(keys) => Some(keys.iter().map(Unit::Key).collect()),
        Serves::Times(times) => Some(times.iter().map(|times| Unit::Times(times)).collect()),
    }
}

/// The other way round, of units that are of one kind.
fn serves(units: &[Unit<'_>]) -> Serves {
    match units.first() {
        Some(Unit::Times(_)) => Serves::Times(units.iter().filter_map(Unit::times).collect()),
        _ => Serves::Keys(units.iter().filter_map(Unit::key).collect()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should say where")]
    use super::*;

    fn key(day: usize) -> PartitionKey {
        let spec = crate::pipeline::parse(PIPELINE, "test").unwrap().partition;
        spec.parse_text(&format!("2024-01-{day:02}")).unwrap()
    }

    const PIPELINE: &str = "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"a/%Y-%m-%d.parquet\"\n[source.columns]\n\
                            at = \"datetime\"\n[partition]\nday = { day_of = \"at\" }\n[measures]\nn = \"count(*)\"\n";

    /// Daily files of ten bytes, each read for its day and for so many days either side.
    fn daily(days: usize, neighbours: usize) -> (SourcePlan, Scope, Vec<u64>) {
        let keys: Vec<PartitionKey> = (1..=days).map(key).collect();
        let file = |day: usize| {
            let (first, last) = (day.saturating_sub(neighbours + 1), (day + neighbours).min(days));
            PlannedFile { path: format!("a/{day:02}"), serves: Serves::Keys(keys[first..last].to_vec()) }
        };
        let files = (1..=days).map(file).collect();
        (SourcePlan { files }, Scope::Partitions(keys), vec![10; days])
    }

    fn sizes(slices: &[Slice]) -> Vec<usize> {
        let size = |slice: &Slice| match &slice.scope {
            Scope::Partitions(keys) => keys.len(),
            Scope::Full => 0,
        };
        slices.iter().map(size).collect()
    }

    #[test]
    fn a_slice_ends_where_its_files_reach_the_bound() {
        let (plan, scope, bytes) = daily(10, 0);
        assert_eq!(sizes(&plan.slices(&scope, &bytes, 30)), [3, 3, 3, 1]);
        assert_eq!(sizes(&plan.slices(&scope, &bytes, 1)), [1; 10]);
        assert_eq!(plan.slices(&scope, &bytes, 1000), [Slice { scope, files: plan.files.clone() }]);
    }

    #[test]
    fn files_are_read_again_at_most_by_a_quarter() {
        let (plan, scope, bytes) = daily(31, 1);
        let slices = plan.slices(&scope, &bytes, 1);
        assert!(slices.len() > 2, "{:?}", sizes(&slices));
        let read: usize = slices.iter().map(|slice| slice.files.len()).sum();
        assert!(read * 4 <= 31 * 5, "{read} files read instead of 31");
    }

    #[test]
    fn every_partition_is_in_one_slice_with_all_its_files() {
        let (plan, scope, bytes) = daily(31, 1);
        let slices = plan.slices(&scope, &bytes, 30);
        let mut found: BTreeMap<PartitionKey, Vec<String>> = BTreeMap::new();
        for slice in &slices {
            let Scope::Partitions(keys) = &slice.scope else { panic!("{slice:?}") };
            for key in keys {
                let files = slice.files.iter().filter(|f| matches!(&f.serves, Serves::Keys(k) if k.contains(key)));
                assert_eq!(found.insert(key.clone(), files.map(|f| f.path.clone()).collect()), None);
            }
        }
        for day in 1..=31_usize {
            let files = (day.saturating_sub(1).max(1)..=(day + 1).min(31)).map(|day| format!("a/{day:02}"));
            assert_eq!(found.get(&key(day)), Some(&files.collect::<Vec<_>>()), "{day}");
        }
    }

    #[test]
    fn a_file_for_everybody_makes_one_slice() {
        let (mut plan, scope, mut bytes) = daily(10, 0);
        plan.files.push(PlannedFile { path: "all".to_owned(), serves: Serves::Scope });
        bytes.push(1);
        assert_eq!(plan.slices(&scope, &bytes, 1).len(), 1);
    }

    #[test]
    fn full_is_cut_by_times() {
        let times = |day: i128| vec![Some(PartitionValue::Int(day))];
        let file = |day: i128| PlannedFile { path: format!("a/{day}"), serves: Serves::Times(vec![times(day)]) };
        let plan = SourcePlan { files: (1..=4).map(file).collect() };
        let slices = plan.slices(&Scope::Full, &[10; 4], 20);
        assert_eq!(slices.len(), 2);
        assert_eq!(slices[1], Slice { scope: Scope::Full, files: vec![file(3), file(4)] });
    }
}
