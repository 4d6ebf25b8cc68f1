//! Tables that keep rows: the rows in scope, one for each key where the pipeline says so, in order.

use super::books::Books;
use super::engine_error;
use super::files::LookedAt;
use super::lower::{inner_type, lower};
use super::measures::{one_zero, to_file};
use super::query::{ROWS, VERDICT, Verdict};
use super::scope::value_name;
use super::sorting::{Sorted, Sorter, keys};
use crate::engine::EngineError;
use crate::pipeline::{Definition, Dimension, Keep, RowTable};
use ::polars::prelude as pl;
use ::polars::prelude::{IntoLazy, NamedFrom};
use std::path::Path;

/// What the rows of an attempt pass through.
pub(super) struct Rows<'a> {
    pub(super) definition: &'a Definition,
    pub(super) table: &'a RowTable,
    /// Where rows are written aside that do not fit the memory.
    pub(super) folder: &'a Path,
    /// How much memory rows may take while they are sorted.
    pub(super) limit_bytes: usize,
}

impl Rows<'_> {
    /// Reads judged rows: counts all of them, and keeps those in scope.
    pub(super) fn read(
        &self,
        judged: pl::LazyFrame,
        files: &[LookedAt],
        books: &mut Books,
    ) -> pl::PolarsResult<Result<Sorter, EngineError>> {
        let order = match self.table.one_of_each_key() {
            Some(dedupe) => self.in_order(&[dedupe.key, dedupe.order_by].concat()),
            None => self.in_order(&self.table.sort_by),
        };
        let value = |column: &&Dimension| lower(self.definition, &column.expr).alias(column.name.as_str());
        let mut columns = vec![pl::col(VERDICT)];
        columns.extend(self.value_names().map(pl::col));
        columns.extend(order.iter().map(value));
        let (batches, told) = std::sync::mpsc::sync_channel(1);
        let sink = pl::PlanCallback::new(move |frame: pl::DataFrame| Ok(batches.send(frame).is_err()));
        let query = judged.select(columns).sink_batches(sink, false, None)?;
        std::thread::scope(|scope| {
            let running = scope.spawn(move || query.collect_with_engine(pl::Engine::Streaming).map(drop));
            let mut sorter = Ok(Sorter::new(self.folder, "rows", self.limit_bytes));
            // When this ends early, the query is told to stop.
            for frame in told {
                sorter = sorter.and_then(|mut sorter| {
                    let rows = self.take(frame, files, books).map_err(|e| engine_error(&e))?;
                    sorter.push(self.stored(rows, &order)?)?;
                    Ok(sorter)
                });
                if sorter.is_err() {
                    break;
                }
            }
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(sorter)
        })
    }

    /// The rows of the table in its order, of each key one where the pipeline says so.
    pub(super) fn finish(&self, sorter: Sorter) -> Result<Sorted, EngineError> {
        let mut sorted = sorter.finish()?;
        let Some(dedupe) = self.table.one_of_each_key() else { return Ok(sorted) };
        let key = dedupe.key.iter().map(|name| name.as_str().into());
        let mut unique = Unique::new(self.value_names().chain(key).collect(), dedupe.keep);
        let order: Vec<pl::PlSmallStr> = {
            let columns = self.in_order(&self.table.sort_by).into_iter().map(|c| c.name.as_str().into());
            self.value_names().chain(columns).collect()
        };
        let mut kept = Sorter::new(self.folder, "kept", self.limit_bytes);
        let mut keep = |rows: pl::DataFrame| kept.push(rows.select(order.clone()).map_err(|e| engine_error(&e))?);
        while let Some(rows) = sorted.next()? {
            for rows in unique.of(rows).map_err(|e| engine_error(&e))? {
                keep(rows)?;
            }
        }
        unique.last().map_or(Ok(()), &mut keep)?;
        kept.finish()
    }

    /// The columns of the files, as they are in them.
    pub(super) fn file_names(&self) -> Vec<pl::PlSmallStr> {
        self.table.columns.iter().map(|column| column.name.as_str().into()).collect()
    }

    /// No rows, in the columns and types of the files.
    pub(super) fn none(&self) -> Result<pl::DataFrame, EngineError> {
        let empty = |column: &Dimension| {
            let inner = pl::Column::new_empty(column.name.as_str().into(), &inner_type(&column.expr.data_type));
            to_file(&inner, &column.expr.data_type)
        };
        let columns: pl::PolarsResult<Vec<pl::Column>> = self.table.columns.iter().map(empty).collect();
        columns.and_then(|columns| pl::DataFrame::new(0, columns)).map_err(|e| engine_error(&e))
    }

    /// Counts a batch of judged rows; answers with those in scope.
    fn take(&self, batch: pl::DataFrame, files: &[LookedAt], books: &mut Books) -> pl::PolarsResult<pl::DataFrame> {
        let mut by = vec![pl::col(VERDICT)];
        by.extend(self.value_names().map(pl::col));
        let counts =
            batch.clone().lazy().group_by(by).agg([pl::len().cast(pl::DataType::Int64).alias(ROWS)]).collect()?;
        books.enter(self.definition, files, &counts)?;
        let in_scope = pl::col(VERDICT).eq(pl::lit(Verdict::InScope as i32));
        batch.lazy().filter(in_scope).collect()
    }

    /// Rows in the types of the files.
    fn stored(&self, rows: pl::DataFrame, order: &[&Dimension]) -> Result<pl::DataFrame, EngineError> {
        let stored = || -> pl::PolarsResult<pl::DataFrame> {
            let mut columns = Vec::new();
            for name in self.value_names() {
                columns.push(rows.column(&name)?.clone());
            }
            for column in order {
                columns.push(one_zero(to_file(rows.column(&column.name)?, &column.expr.data_type)?));
            }
            pl::DataFrame::new(rows.height(), columns)
        };
        stored().map_err(|e| engine_error(&e))
    }

    fn value_names(&self) -> impl Iterator<Item = pl::PlSmallStr> {
        (0..self.definition.partition.columns().len()).map(value_name)
    }

    /// All columns of the table, those that are named first.
    pub(super) fn in_order(&self, first: &[String]) -> Vec<&Dimension> {
        let named = first.iter().filter_map(|name| self.table.columns.iter().find(|column| column.name == *name));
        let mut out: Vec<&Dimension> = Vec::new();
        for column in named.chain(&self.table.columns) {
            if !out.iter().any(|before| before.name == column.name) {
                out.push(column);
            }
        }
        out
    }
}

/// Lets one row of each key pass; rows come sorted by their key.
pub(super) struct Unique {
    names: Vec<pl::PlSmallStr>,
    keep: Keep,
    /// The key that came last, with its row so far where that has not passed.
    last: Option<(Vec<u8>, Option<pl::DataFrame>)>,
}

impl Unique {
    /// By the key in these columns.
    pub(super) fn new(names: Vec<pl::PlSmallStr>, keep: Keep) -> Self {
        Self { names, keep, last: None }
    }

    /// The row that is still held when no more come.
    pub(super) fn last(self) -> Option<pl::DataFrame> {
        self.last.and_then(|(_, row)| row)
    }

    /// Those of the rows that pass, and of those before them.
    pub(super) fn of(&mut self, rows: pl::DataFrame) -> pl::PolarsResult<Vec<pl::DataFrame>> {
        let keys = keys(&rows.select(self.names.clone())?)?;
        let Some(end) = rows.height().checked_sub(1) else { return Ok(Vec::new()) };
        let mut out = Vec::new();
        let before = self.last.take();
        let goes_on = before.as_ref().is_some_and(|(key, _)| keys.get(0) == Some(key));
        if let (Some((_, Some(row))), false) = (before, goes_on) {
            out.push(row);
        }
        let changes = |at: usize| keys.get(at) != keys.get(at + 1);
        let passes = |at: usize| match self.keep {
            Keep::First if at == 0 => !goes_on,
            Keep::First => changes(at - 1),
            // Whether another row of the last key comes is not known yet.
            Keep::Last => at < end && changes(at),
        };
        let mask = pl::BooleanChunked::new("passes".into(), (0..rows.height()).map(passes).collect::<Vec<_>>());
        out.push(rows.filter(&mask)?);
        let held = (self.keep == Keep::Last).then(|| rows.slice(i64::try_from(end).unwrap_or(i64::MAX), 1));
        self.last = keys.get(end).map(|key| (key.to_vec(), held));
        Ok(out)
    }
}
