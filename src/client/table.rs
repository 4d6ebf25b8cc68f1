//! Tables of text: columns, numbers for people, and small bars.

use super::screen::Paint;

/// How many characters a bar takes.
const BAR_CHARS: u32 = 20;

/// A table with a head, printed in columns two spaces apart.
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    rule_before: Option<usize>,
}

/// A column: its head, and on which side its texts stand.
pub(super) struct Column {
    head: String,
    right: bool,
}

impl Column {
    /// Of texts.
    pub(super) fn left(head: &str) -> Self {
        Self { head: head.to_owned(), right: false }
    }

    /// Of numbers.
    pub(super) fn right(head: &str) -> Self {
        Self { head: head.to_owned(), right: true }
    }
}

impl Table {
    /// Without rows.
    pub(super) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new(), rule_before: None }
    }

    /// Adds a row; texts beyond the columns are left out.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Draws a line before the next row.
    pub(super) fn rule(&mut self) {
        self.rule_before = Some(self.rows.len());
    }

    /// The lines, each indented by `indent` spaces.
    pub(super) fn render(&self, indent: usize, paint: Paint) -> String {
        let width = |i: usize, column: &Column| {
            let cells = self.rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
            cells.chain([column.head.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = self.columns.iter().enumerate().map(|(i, column)| width(i, column)).collect();
        let heads: Vec<String> = self.columns.iter().map(|column| column.head.clone()).collect();
        let rule = "-".repeat(widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1));
        let mut out = String::new();
        let mut line = |text: &str| {
            out.extend(std::iter::repeat_n(' ', indent));
            out.push_str(text.trim_end());
            out.push('\n');
        };
        line(&self.line(&heads, &widths, paint));
        for (at, row) in self.rows.iter().enumerate() {
            if self.rule_before == Some(at) {
                line(&rule);
            }
            line(&self.line(row, &widths, paint));
        }
        out
    }

    fn line(&self, cells: &[String], widths: &[usize], paint: Paint) -> String {
        let padded = self.columns.iter().zip(widths).zip(cells).map(|((column, &width), cell)| {
            let text = if column.right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            paint.word(cell, text)
        });
        padded.collect::<Vec<_>>().join("  ")
    }
}

/// A number in digits with a comma before every third of its whole part; what is no number is as it was.
pub fn thousands(number: &str) -> String {
    let (sign, digits) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, part) = digits.find('.').map_or((digits, ""), |at| digits.split_at(at));
    if !whole.bytes().all(|b| b.is_ascii_digit()) {
        return number.to_owned();
    }
    let mut text = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + part
}

/// A bar for a share of the whole, in eighths of a character; what is not nothing is seen.
pub(super) fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * f64::from(BAR_CHARS * 8)).round() as u32;
    let eighths = eighths.max(u32::from(share > 0.0));
    let mut text: String = std::iter::repeat_n('█', (eighths / 8) as usize).collect();
    text.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1) as usize));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_set_apart() {
        let texts = ["0", "999", "1000", "-123456", "256692373.14", "-1234.50", "2024-02", "1e9"].map(thousands);
        assert_eq!(texts, ["0", "999", "1,000", "-123,456", "256,692,373.14", "-1,234.50", "2024-02", "1e9"]);
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        let bars = [0.0, 0.000_001, 0.05, 0.5, 1.0, 7.0, -1.0, f64::NAN].map(bar);
        let (ten, twenty) = ("█".repeat(10), "█".repeat(20));
        assert_eq!(bars, ["", "▏", "█", &ten, &twenty, &twenty, "", ""].map(str::to_owned));
        assert_eq!(bar(0.525), format!("{ten}▌"));
    }

    #[test]
    fn numbers_stand_right_and_lines_end_with_their_text() {
        let mut table = Table::new(vec![Column::left("month"), Column::right("rows"), Column::left("")]);
        table.row(["2024-01", "1,000", "██"].map(str::to_owned).to_vec());
        table.row(["x", "7", ""].map(str::to_owned).to_vec());
        table.rule();
        table.row(["all", "1,007"].map(str::to_owned).to_vec());
        insta::assert_snapshot!(table.render(0, Paint::PLAIN), @r"
        month     rows
        2024-01  1,000  ██
        x            7
        ------------------
        all      1,007
        ");
        assert!(table.render(2, Paint::PLAIN).lines().all(|line| line.starts_with("  ") && line == line.trim_end()));
    }
}
