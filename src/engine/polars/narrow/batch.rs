//! A batch of rows: judged row by row, its rows in scope ready to be grouped.

use super::super::files::LookedAt;
use super::super::query::{BAD, Verdict, dimension_column, measure_column};
use super::super::scope::{Allowed, value_name};
use super::flags::Flags;
use super::{KEPT, accumulator, words};
use crate::partition::PartitionValue;
use crate::pipeline::Definition;
use ::polars::prelude as pl;
use std::collections::HashMap;
use std::ops::Range;

/// How the rows of a file are judged.
pub(super) struct Judge {
    allowed: Allowed,
    nowhere: i32,
    out_of_scope: i32,
    rejected: i32,
    filtered: i32,
    in_scope: i32,
    values: usize,
    dimensions: usize,
    /// The columns of the measures that have one.
    measures: Vec<pl::PlSmallStr>,
}

impl Judge {
    /// Of the file that is the `index`-th.
    pub(super) fn of(definition: &Definition, file: &LookedAt, index: usize) -> Self {
        Self::within(definition, file.allowed.clone(), index)
    }

    /// All partitions.
    #[cfg(test)]
    pub(super) fn over(definition: &Definition) -> Self {
        Self::within(definition, Allowed::All, 0)
    }

    fn within(definition: &Definition, allowed: Allowed, index: usize) -> Self {
        let code = |verdict: Verdict| verdict.code_in(definition, index);
        let measures = definition.measures.iter().enumerate();
        Self {
            allowed,
            nowhere: code(Verdict::Nowhere),
            out_of_scope: code(Verdict::OutOfScope),
            rejected: code(Verdict::Rejected),
            filtered: code(Verdict::Filtered),
            in_scope: code(Verdict::InScope),
            values: definition.partition.columns().len(),
            dimensions: definition.dimensions.len(),
            measures: measures
                .filter(|(_, measure)| accumulator(&measure.aggregate).is_some())
                .map(|(at, _)| measure_column(at, ""))
                .collect(),
        }
    }
}

/// A column as integers.
pub(super) struct Words {
    /// Of one chunk; what is null is any number.
    chunked: pl::Int64Chunked,
    /// Which of them are values, where not all are.
    valid: Option<Vec<bool>>,
}

impl Words {
    pub(super) fn of(frame: &pl::DataFrame, name: &str) -> pl::PolarsResult<Self> {
        let chunked = words(frame.column(name)?)?;
        let valid = (chunked.null_count() > 0).then(|| chunked.iter().map(|value| value.is_some()).collect());
        Ok(Self { chunked, valid })
    }

    #[inline]
    pub(super) fn values(&self) -> &[i64] {
        self.chunked.downcast_iter().next().map_or(&[], |chunk| chunk.values())
    }

    pub(super) fn has_nulls(&self) -> bool {
        self.valid.is_some()
    }

    #[inline]
    pub(super) fn is_valid(&self, row: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| valid[row])
    }

    /// Where there are nulls: 0 in their place.
    fn without_nulls(mut self) -> Self {
        if self.valid.is_some() {
            let values = self.chunked.iter().map(|value| value.unwrap_or(0)).collect();
            self.chunked = pl::Int64Chunked::from_vec(self.chunked.name().clone(), values);
        }
        self
    }
}

/// How many rows were judged to be what (a code of a verdict), by their partition values, none for those without.
pub(super) type Counts = Vec<((i32, Vec<i64>), u64)>;

/// The rows of a batch.
pub(super) struct Batch {
    /// The partition values, and the dimensions with 0 for null.
    pub(super) keys: Vec<Words>,
    /// Which dimensions are null, a bit for each; none where none is.
    pub(super) nulls: Option<Words>,
    /// What is added up.
    pub(super) numbers: Vec<Words>,
    /// The rows in scope, neighbours together.
    pub(super) rows: Vec<Range<usize>>,
    /// How many were judged to be what.
    pub(super) counts: Counts,
    pub(super) height: usize,
}

impl Batch {
    /// Judges the rows of a frame.
    pub(super) fn judged(judge: &Judge, frame: &pl::DataFrame) -> pl::PolarsResult<Self> {
        let values = (0..judge.values).map(|at| Words::of(frame, &value_name(at)));
        let mut keys = values.collect::<pl::PolarsResult<Vec<Words>>>()?;
        let (rows, counts) = in_scope(judge, frame, &keys)?;
        let height = frame.height();
        let mut nulls = Vec::new();
        for at in 0..judge.dimensions {
            let dimension = Words::of(frame, &dimension_column(at))?;
            if let Some(valid) = &dimension.valid {
                nulls.resize(height, 0i64);
                nulls.iter_mut().zip(valid).for_each(|(nulls, valid)| *nulls |= i64::from(!valid) << at);
            }
            keys.push(dimension.without_nulls());
        }
        let nulls = (!nulls.is_empty()).then(|| pl::Int64Chunked::from_vec("".into(), nulls));
        let nulls = nulls.map(|chunked| Words { chunked, valid: None });
        let numbers = judge.measures.iter().map(|name| Words::of(frame, name)).collect::<pl::PolarsResult<_>>()?;
        Ok(Self { keys, nulls, numbers, rows, counts, height })
    }
}

/// Which rows are in scope, and how many are judged to be what, in the order of judgement.
fn in_scope(judge: &Judge, frame: &pl::DataFrame, values: &[Words]) -> pl::PolarsResult<(Vec<Range<usize>>, Counts)> {
    let bad = flags(frame, BAD)?.filter(pl::BooleanChunked::any).map(|bad| Flags::of(&bad));
    let kept = flags(frame, KEPT)?.filter(|kept| kept.null_count() > 0 || !kept.all()).map(|kept| Flags::of(&kept));
    // Those that are kept and not bad, where not all are.
    let good = match (kept, &bad) {
        (Some(kept), Some(bad)) => Some(kept.without(bad)),
        (None, Some(bad)) => Some(bad.not()),
        (kept, None) => kept,
    };
    let mut places = Places::new(judge, values);
    let mut rows: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    while start < frame.height() {
        let stretch = start..stretch_end(values, start, frame.height());
        start = stretch.end;
        let place = places.of(stretch.start);
        if !place.allowed {
            place.others += stretch.len() as u64;
            continue;
        }
        let rejected = bad.as_ref().map_or(0, |bad| bad.count(stretch.clone()));
        let mut taken = 0;
        let take = |run: Range<usize>| {
            taken += run.len();
            match rows.last_mut().filter(|last| last.end == run.start) {
                Some(last) => last.end = run.end,
                None => rows.push(run),
            }
        };
        match &good {
            Some(good) => good.runs(stretch.clone(), take),
            None => Some(stretch.clone()).into_iter().for_each(take),
        }
        place.rejected += rejected as u64;
        place.others += taken as u64;
        place.filtered += (stretch.len() - rejected - taken) as u64;
    }
    Ok((rows, places.counts()))
}

/// A column of flags; none where there is no such column.
fn flags(frame: &pl::DataFrame, name: &str) -> pl::PolarsResult<Option<pl::BooleanChunked>> {
    let column = frame.column(name).ok();
    column.map(|column| column.as_materialized_series().bool().cloned()).transpose()
}

/// The end of the rows from `first` on that have its partition values.
fn stretch_end(values: &[Words], first: usize, height: usize) -> usize {
    values.iter().fold(height, |end, column| match &column.valid {
        // Where one is null they are judged one by one.
        Some(_) => first + 1,
        None => first + length_of_same(&column.values()[first..end]),
    })
}

/// How many values have the value of the first of them, one after the other.
pub(super) fn length_of_same(values: &[i64]) -> usize {
    /// So many are looked at together.
    const BLOCK: usize = 32;
    let Some(first) = values.first() else { return 0 };
    if values.get(1) != Some(first) {
        return 1;
    }
    let are_same = |block: &[i64]| block.iter().filter(|value| *value == first).count() == BLOCK;
    let blocks = values.chunks_exact(BLOCK).take_while(|block| are_same(block)).count() * BLOCK;
    blocks + values[blocks..].iter().take_while(|value| *value == first).count()
}

/// A partition that rows of a batch have, or none.
#[derive(Default)]
struct Place {
    values: Vec<i64>,
    allowed: bool,
    rejected: u64,
    filtered: u64,
    others: u64,
}

/// The partitions of a batch's rows: few, and neighbours mostly have the same.
pub(super) struct Places<'a> {
    judge: &'a Judge,
    columns: &'a [Words],
    nowhere: Place,
    all: Vec<Place>,
    by_values: HashMap<Vec<i64>, usize>,
    last: usize,
    values: Vec<i64>,
}

impl<'a> Places<'a> {
    /// What so many rows with these partition values are judged to be by them alone.
    pub(super) fn all(judge: &Judge, columns: &[Words], height: usize) -> Counts {
        let (mut places, mut start) = (Places::new(judge, columns), 0);
        while start < height {
            let end = stretch_end(columns, start, height);
            places.of(start).others += (end - start) as u64;
            start = end;
        }
        places.counts()
    }

    fn new(judge: &'a Judge, columns: &'a [Words]) -> Self {
        let (all, by_values, values) = (Vec::new(), HashMap::new(), Vec::new());
        Self { judge, columns, nowhere: Place::default(), all, by_values, last: 0, values }
    }

    /// The partition of a row.
    fn of(&mut self, row: usize) -> &mut Place {
        if !self.columns.iter().all(|column| column.is_valid(row)) {
            return &mut self.nowhere;
        }
        self.values.clear();
        self.values.extend(self.columns.iter().map(|column| column.values()[row]));
        if self.all.get(self.last).is_none_or(|place| place.values != self.values) {
            self.last = match self.by_values.get(&self.values) {
                Some(at) => *at,
                None => self.enter(),
            };
        }
        &mut self.all[self.last]
    }

    fn enter(&mut self) -> usize {
        let values: Vec<PartitionValue> = self.values.iter().map(|v| PartitionValue::Int(i128::from(*v))).collect();
        let allowed = self.judge.allowed.contains(&values);
        self.by_values.insert(self.values.clone(), self.all.len());
        self.all.push(Place { values: self.values.clone(), allowed, ..Place::default() });
        self.all.len() - 1
    }

    fn counts(self) -> Counts {
        let judge = self.judge;
        let of_place = |place: Place| {
            let others = if place.allowed { judge.in_scope } else { judge.out_of_scope };
            [(judge.rejected, place.rejected), (judge.filtered, place.filtered), (others, place.others)]
                .map(|(code, rows)| ((code, place.values.clone()), rows))
        };
        let nowhere = ((judge.nowhere, Vec::new()), self.nowhere.others);
        self.all.into_iter().flat_map(of_place).chain([nowhere]).filter(|(_, rows)| *rows > 0).collect()
    }
}
