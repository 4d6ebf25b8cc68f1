//! Which files are whose sources.

mod foreseen;
mod slices;
#[cfg(test)]
mod tests;

pub use foreseen::{Foreseen, ForeseenFile, foresee};
pub use slices::Slice;

use super::url::is_url;
use super::{Definition, SourcePath, Template};
use crate::partition::{PartitionKey, PartitionValue, Period};
use crate::run::{FailureClass, RunError, Scope};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// How many missing files an error names.
const MAX_NAMED: usize = 3;

/// What the planner asks of the file system and of other servers. Paths are as the pipeline writes them; relative ones
/// start at the source root.
pub trait Listing {
    /// Whether each of these paths names a file. They are asked for together, since an answer may have a long way.
    fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError>;
    /// The files that match this glob, sorted by path, without hidden files.
    fn glob(&self, pattern: &str) -> Result<Vec<String>, RunError>;
}

/// The partitions that a file is a source of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Serves {
    /// Every partition of the scope (plain paths and globs; in `full` only where the pipeline has no template).
    Scope,
    /// These partitions of the scope (a template, `overwrite`).
    Keys(Vec<PartitionKey>),
    /// Every partition whose time columns have one of these values, in the order of the partition columns with `None`
    /// for a column without a period (`full` with a template): the partitions that have all their own files.
    Times(Vec<Vec<Option<PartitionValue>>>),
}

/// A file to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedFile {
    /// Its path, as the pipeline writes it with the fields and globs filled in.
    pub path: String,
    /// Whose source it is.
    pub serves: Serves,
}

/// The files of a run, each once, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlan {
    /// The files.
    pub files: Vec<PlannedFile>,
}

impl SourcePlan {
    /// Whether the stray partition `key`, found in `file`, does not take that file but would with `neighbours` one
    /// higher.
    pub fn is_next_door(&self, definition: &Definition, file: &PlannedFile, key: &PartitionKey) -> bool {
        let Some(period) = definition.partition.period(key) else {
            return false;
        };
        let whole = glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let distance = |path: &SourcePath| match path {
            SourcePath::Plain(plain) => (*plain == file.path).then_some(0),
            SourcePath::Glob(pattern) => {
                let matches = glob::Pattern::new(pattern).is_ok_and(|glob| glob.matches_with(&file.path, whole));
                (matches && is_data(pattern, &file.path)).then_some(0)
            }
            SourcePath::Template(template) => {
                let (index, own) = (template.index_of(&file.path)?, own_indexes(template, period));
                Some((own.start() - index).max(index - own.end()).max(0))
            }
        };
        let nearest = definition.source.paths.iter().filter_map(distance).min();
        nearest == Some(i64::from(definition.source.neighbours) + 1)
    }
}

/// Plans the files of a run. Files that are not there are a source failure (`source-missing`); what the listing cannot
/// answer is its own error.
pub fn plan(definition: &Definition, scope: &Scope, listing: &dyn Listing) -> Result<SourcePlan, RunError> {
    let (plan, missing) = look(definition, scope, listing)?;
    missing_error(&missing).map_or(Ok(plan), Err)
}

/// The files that are there, and what is not, in words.
fn look(definition: &Definition, scope: &Scope, listing: &dyn Listing) -> Result<(SourcePlan, Vec<String>), RunError> {
    let mut plan = Planner { definition, listing, files: BTreeMap::new(), missing: Vec::new() };
    match scope {
        Scope::Partitions(keys) => plan.overwrite(keys)?,
        Scope::Full => plan.full()?,
    }
    let files = plan.files.into_iter().map(|(path, serves)| PlannedFile { path, serves: serves.into() });
    Ok((SourcePlan { files: files.collect() }, plan.missing))
}

/// What a file serves so far.
enum Serving<'a> {
    Scope,
    Keys(BTreeSet<&'a PartitionKey>),
    Times(BTreeSet<Vec<Option<PartitionValue>>>),
}

/// The files of a template that are there, by the numbers of their periods.
type There = BTreeMap<i64, String>;

impl From<Serving<'_>> for Serves {
    fn from(serving: Serving<'_>) -> Self {
        match serving {
            Serving::Scope => Serves::Scope,
            Serving::Keys(keys) => Serves::Keys(keys.into_iter().cloned().collect()),
            Serving::Times(times) => Serves::Times(times.into_iter().collect()),
        }
    }
}

struct Planner<'a> {
    definition: &'a Definition,
    listing: &'a dyn Listing,
    files: BTreeMap<String, Serving<'a>>,
    /// What is not there, in words.
    missing: Vec<String>,
}

impl<'a> Planner<'a> {
    fn overwrite(&mut self, keys: &'a [PartitionKey]) -> Result<(), RunError> {
        for path in self.untimed()? {
            self.files.insert(path, Serving::Scope);
        }
        let period = |key: &'a PartitionKey| (key, self.definition.partition.period(key));
        let periods: Vec<(&PartitionKey, Option<Period>)> = keys.iter().map(period).collect();
        for template in self.templates() {
            let there = self.there(template, periods.iter().filter_map(|(_, period)| *period))?;
            for (key, period) in &periods {
                self.overwrite_one(template, key, *period, &there);
            }
        }
        Ok(())
    }

    /// The files that a template has for these periods and their neighbours, by the numbers of its own.
    fn there(&self, template: &Template, periods: impl Iterator<Item = Period>) -> Result<There, RunError> {
        let indexes: BTreeSet<i64> =
            periods.flat_map(|period| self.with_neighbours(&own_indexes(template, period))).collect();
        let (indexes, paths): (Vec<i64>, Vec<String>) =
            indexes.into_iter().filter_map(|index| Some((index, template.path(index)?))).unzip();
        let found = self.listing.are_files(&paths)?;
        let there = indexes.into_iter().zip(paths).zip(found);
        Ok(there.filter_map(|(file, found)| found.then_some(file)).collect())
    }

    /// The files of a template for one partition.
    fn overwrite_one(&mut self, template: &Template, key: &'a PartitionKey, period: Option<Period>, there: &There) {
        let Some(period) = period else {
            self.missing.push(format!("{} has no file for {key}, which covers no time", template.text));
            return;
        };
        let own = own_indexes(template, period);
        for index in self.with_neighbours(&own) {
            match there.get(&index) {
                Some(path) => self.serve_key(path, key),
                None if own.contains(&index) => self.misses(template, index, &format!("and {key} needs it")),
                None => {}
            }
        }
    }

    fn full(&mut self) -> Result<(), RunError> {
        let untimed = self.untimed()?;
        let mut found = Vec::new();
        for template in self.templates() {
            if is_url(&template.text) {
                return Err(not_listed(template));
            }
            let paths = self.listing.glob(&template.glob())?;
            let there: There = paths.into_iter().filter_map(|path| Some((template.index_of(&path)?, path))).collect();
            if there.is_empty() {
                self.missing.push(format!("{} matches no file", template.text));
            }
            found.push((template, there));
        }
        let made = self.made(&found);
        for (times, period) in &made {
            self.full_one(times, *period, &found);
        }
        let all_made: BTreeSet<_> = made.into_iter().map(|(times, _)| times).collect();
        for path in untimed {
            // With a template its files say which partitions are made, for the other files too.
            let serving = if found.is_empty() { Serving::Scope } else { Serving::Times(all_made.clone()) };
            self.files.insert(path, serving);
        }
        Ok(())
    }

    /// The partitions that have an own file, each as its time values and its period.
    fn made(&self, found: &[(&Template, There)]) -> Vec<(Vec<Option<PartitionValue>>, Period)> {
        let spec = &self.definition.partition;
        let Some(grain) = spec.time_grain() else {
            return Vec::new();
        };
        let mut made = BTreeSet::new();
        for (template, there) in found {
            let periods = there.keys().filter_map(|index| template.unit.grain().period(*index));
            made.extend(periods.flat_map(|period| grain.index(period.start)..=grain.index(last_instant(period))));
        }
        let periods = made.into_iter().filter_map(|index| grain.period(index));
        periods.map(|period| (spec.time_values(period.start), period)).collect()
    }

    /// The files of one partition in `full`.
    fn full_one(&mut self, times: &[Option<PartitionValue>], period: Period, found: &[(&Template, There)]) {
        for (template, there) in found {
            let own = own_indexes(template, period);
            for index in self.with_neighbours(&own) {
                match there.get(&index) {
                    Some(path) => self.serve_times(path, times),
                    None if own.contains(&index) => {
                        let (start, end) = (period.start, period.end);
                        let whose = format!("and the partition from {start} to {end}, which has other files, needs it");
                        self.misses(template, index, &whose);
                    }
                    None => {}
                }
            }
        }
    }

    /// The template's file of that period is not there; there is none outside the years that it can name.
    fn misses(&mut self, template: &Template, index: i64, whose: &str) {
        let path = template.path(index);
        self.missing.extend(path.map(|path| format!("{path} does not exist, {whose}")));
    }

    /// The files of plain paths and globs.
    fn untimed(&mut self) -> Result<Vec<String>, RunError> {
        let paths = &self.definition.source.paths;
        let plain = paths.iter().filter_map(|path| if let SourcePath::Plain(path) = path { Some(path) } else { None });
        let (mut files, absent) = self.told_apart(plain.cloned().collect())?;
        self.missing.extend(absent.into_iter().map(|path| format!("{path} does not exist")));
        for path in paths {
            match path {
                SourcePath::Glob(pattern) => {
                    let before = files.len();
                    files.extend(self.listing.glob(pattern)?.into_iter().filter(|path| is_data(pattern, path)));
                    if files.len() == before {
                        self.missing.push(format!(
                            "{pattern} matches no file (names that start with . or _ or end in .crc do not count)"
                        ));
                    }
                }
                SourcePath::Plain(_) | SourcePath::Template(_) => {}
            }
        }
        Ok(files)
    }

    /// Those of the paths that name a file, and the others.
    fn told_apart(&self, paths: Vec<String>) -> Result<(Vec<String>, Vec<String>), RunError> {
        let mut found = self.listing.are_files(&paths)?.into_iter();
        Ok(paths.into_iter().partition(|_| found.next() == Some(true)))
    }

    fn templates(&self) -> Vec<&'a Template> {
        let definition: &'a Definition = self.definition;
        let templates = definition.source.paths.iter().map(|path| match path {
            SourcePath::Template(template) => Some(template),
            _ => None,
        });
        templates.flatten().collect()
    }

    fn with_neighbours(&self, own: &RangeInclusive<i64>) -> RangeInclusive<i64> {
        let neighbours = i64::from(self.definition.source.neighbours);
        own.start() - neighbours..=own.end() + neighbours
    }

    fn serve_key(&mut self, path: &str, key: &'a PartitionKey) {
        match self.files.get_mut(path) {
            Some(Serving::Keys(keys)) => drop(keys.insert(key)),
            Some(_) => {}
            None => drop(self.files.insert(path.to_owned(), Serving::Keys(BTreeSet::from([key])))),
        }
    }

    fn serve_times(&mut self, path: &str, times: &[Option<PartitionValue>]) {
        match self.files.get_mut(path) {
            Some(Serving::Times(all)) => drop(all.insert(times.to_vec())),
            Some(_) => {}
            None => drop(self.files.insert(path.to_owned(), Serving::Times(BTreeSet::from([times.to_vec()])))),
        }
    }
}

fn missing_error(missing: &[String]) -> Option<RunError> {
    let named = missing.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join("; ");
    let detail = match missing.len() {
        0 => return None,
        count if count > MAX_NAMED => format!("{named}; and {} more", count - MAX_NAMED),
        _ => named,
    };
    Some(failure("source-missing", "A source file is missing", detail))
}

/// The periods of a template that overlap this time.
fn own_indexes(template: &Template, period: Period) -> RangeInclusive<i64> {
    let grain = template.unit.grain();
    grain.index(period.start)..=grain.index(last_instant(period))
}

/// The last microsecond inside.
fn last_instant(period: Period) -> chrono::NaiveDateTime {
    period.end - chrono::TimeDelta::microseconds(1)
}

/// Whether a file found by a glob holds data, as Hive and Spark see it: neither it nor a folder that the glob chose is
/// named like something hidden or half-done.
fn is_data(pattern: &str, path: &str) -> bool {
    let fixed = pattern.split('/').take_while(|part| !part.contains(['*', '?', '['])).count();
    let hidden = |part: &str| part.starts_with('.') || (part.starts_with('_') && !part.contains('='));
    !path.ends_with(".crc") && !path.split('/').skip(fixed).any(hidden)
}

/// A rebuild of the whole table needs all files that there are.
fn not_listed(template: &Template) -> RunError {
    let detail = format!(
        "{}: mode full takes every file that a template matches, and no server lists them; expected mode overwrite with the \
         partitions, or plain URLs",
        template.text
    );
    RunError::new(FailureClass::Compute, "source-not-listed", "The source files cannot be listed", detail)
}

fn failure(kind: &str, title: &str, detail: String) -> RunError {
    RunError::new(FailureClass::Source, kind, title, detail)
}
