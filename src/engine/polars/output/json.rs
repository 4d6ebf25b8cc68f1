//! Values as JSON: decimals as texts, as everywhere in the interface; what JSON has no number for is null.

use super::csv::Cells;
use ::polars::prelude as pl;
use std::io;

/// Writes a value.
pub(in crate::engine::polars) fn write_json(cells: &Cells, row: usize, out: &mut Vec<u8>) -> pl::PolarsResult<()> {
    let start = out.len();
    let written = match cells {
        Cells::Text(texts) => match texts.get(row) {
            Some(value) => json_text(value, out).map(|()| true)?,
            None => false,
        },
        Cells::Float32(floats) if floats.get(row).is_some_and(|value| !value.is_finite()) => false,
        Cells::Float64(floats) if floats.get(row).is_some_and(|value| !value.is_finite()) => false,
        Cells::Decimal(..) | Cells::Date(_) | Cells::Datetime(..) => {
            out.push(b'"');
            let written = cells.write(row, out)?;
            out.push(b'"');
            written
        }
        plain => plain.write(row, out)?,
    };
    if !written {
        out.truncate(start);
        out.extend_from_slice(b"null");
    }
    Ok(())
}

/// Writes a text in quotes.
pub(in crate::engine::polars) fn json_text(value: &str, out: &mut Vec<u8>) -> io::Result<()> {
    serde_json::to_writer(out, value).map_err(io::Error::from)
}
