//! Templates: paths with strftime fields, one file per period.

use super::{SourcePath, Template, TemplateUnit, url};
use crate::partition::Grain;
use chrono::{Datelike, NaiveDateTime, Timelike};

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field { grain: Grain, padded: bool },
}

impl SourcePath {
    /// Reads a path as a pipeline writes it: `%%` is a percent sign in all kinds of paths.
    pub(super) fn parse(written: &str) -> Result<Self, String> {
        if written.is_empty() || written.contains('\0') {
            return Err("expected a path, found an empty text or a NUL character".to_owned());
        }
        let url = url::tidy(written)?;
        let is_url = url.is_some();
        let written = url.unwrap_or_else(|| tidy(written));
        let pieces = pieces(&written)?;
        let text: String = pieces.iter().map(|piece| if let Piece::Text(text) = piece { text } else { "" }).collect();
        let is_glob = !is_url && text.contains(['*', '?', '[']);
        let is_template = pieces.iter().any(|piece| matches!(piece, Piece::Field { .. }));
        match (is_glob, is_template) {
            (false, false) => Ok(SourcePath::Plain(text)),
            (true, false) => match glob::Pattern::new(&text) {
                Ok(_) if text.ends_with("**") => {
                    Err(format!("{text} matches folders alone, expected {text}/* for all files below them"))
                }
                Ok(_) => Ok(SourcePath::Glob(text)),
                Err(wrong) => Err(format!("{text} is no glob: {} at character {}", wrong.msg, wrong.pos)),
            },
            (false, true) => Ok(SourcePath::Template(Template { unit: unit(&pieces)?, text: written })),
            (true, true) => Err(format!("{written} has both * ? [ and strftime fields, expected one kind")),
        }
    }
}

impl SourcePath {
    /// Whether it is a template of URLs: which of them there are nobody lists.
    pub fn is_url_template(&self) -> bool {
        matches!(self, SourcePath::Template(template) if url::is_url(&template.text))
    }
}

impl TemplateUnit {
    /// The length of the period.
    pub fn grain(self) -> Grain {
        match self {
            TemplateUnit::Year => Grain::Year,
            TemplateUnit::Month => Grain::Month,
            TemplateUnit::Day => Grain::Day,
            TemplateUnit::Hour => Grain::Hour,
        }
    }
}

impl Template {
    /// The path of the period of that number; none outside the years 0001 to 9999.
    pub(super) fn path(&self, index: i64) -> Option<String> {
        let start = self.unit.grain().period(index)?.start;
        Some(self.pieces().iter().map(|piece| filled(piece, start)).collect())
    }

    /// A glob that matches the path of every period, and maybe others.
    pub(super) fn glob(&self) -> String {
        let pieces = self.pieces();
        let globs = pieces.iter().map(|piece| match piece {
            // A path with fields has no glob characters.
            Piece::Text(text) => text.clone(),
            Piece::Field { grain: Grain::Year, .. } => "[0-9]".repeat(4),
            Piece::Field { padded: true, .. } => "[0-9]".repeat(2),
            Piece::Field { padded: false, .. } => "[0-9]*".to_owned(),
        });
        globs.collect()
    }

    /// The number of the period whose path is exactly this.
    pub(super) fn index_of(&self, path: &str) -> Option<i64> {
        let mut parts = [1u32, 1, 1, 0];
        let mut rest = path;
        for piece in self.pieces() {
            rest = match piece {
                Piece::Text(text) => rest.strip_prefix(text.as_str())?,
                Piece::Field { grain, padded } => {
                    let most = if grain == Grain::Year { 4 } else { 2 };
                    let digits = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
                    let (number, after) = rest.split_at_checked(digits).filter(|_| digits == most || !padded)?;
                    *parts.get_mut(grain as usize)? = number.parse().ok()?;
                    after
                }
            };
        }
        let [year, month, day, hour] = parts;
        let date = chrono::NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
        let index = self.unit.grain().index(date.and_hms_opt(hour, 0, 0)?);
        // Written back it must be the same: a field that occurs twice may have differed, and nothing may follow.
        (self.path(index).as_deref() == Some(path)).then_some(index)
    }

    fn pieces(&self) -> Vec<Piece> {
        pieces(&self.text).unwrap_or_default()
    }
}

fn filled(piece: &Piece, at: NaiveDateTime) -> String {
    let (grain, padded) = match piece {
        Piece::Text(text) => return text.clone(),
        Piece::Field { grain, padded } => (grain, padded),
    };
    let number = match grain {
        Grain::Year => return format!("{:04}", at.year()),
        Grain::Month => at.month(),
        Grain::Day => at.day(),
        Grain::Hour => at.hour(),
    };
    if *padded { format!("{number:02}") } else { number.to_string() }
}

/// One spelling for one path: without `.` folders and doubled slashes.
fn tidy(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    format!("{root}{}", parts.join("/"))
}

fn pieces(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = vec![];
    let mut literal = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            literal.push(c);
            continue;
        }
        let mut code = rest.next();
        let padded = code != Some('-');
        if !padded {
            code = rest.next();
        }
        let grain = match (code, padded) {
            (Some('%'), true) => {
                literal.push('%');
                continue;
            }
            (Some('Y'), true) => Grain::Year,
            (Some('m'), _) => Grain::Month,
            (Some('d'), _) => Grain::Day,
            (Some('H'), _) => Grain::Hour,
            (other, _) => {
                let found =
                    format!("%{}{}", if padded { "" } else { "-" }, other.map(String::from).unwrap_or_default());
                return Err(format!(
                    "{found} is no field, expected %Y, %m, %d, %H, %-m, %-d, %-H, or %% for a percent sign"
                ));
            }
        };
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Field { grain, padded });
    }
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

/// The finest field, where no coarser one is missing and names can be told apart.
fn unit(pieces: &[Piece]) -> Result<TemplateUnit, String> {
    let has =
        |wanted: Grain| pieces.iter().any(|piece| matches!(piece, Piece::Field { grain, .. } if *grain == wanted));
    let unit = match [Grain::Year, Grain::Month, Grain::Day, Grain::Hour].map(has) {
        [true, false, false, false] => TemplateUnit::Year,
        [true, true, false, false] => TemplateUnit::Month,
        [true, true, true, false] => TemplateUnit::Day,
        [true, true, true, true] => TemplateUnit::Hour,
        _ => return Err("expected the fields %Y, %Y %m, %Y %m %d or %Y %m %d %H, without a gap".to_owned()),
    };
    let ambiguous = pieces.windows(2).any(|pair| match pair {
        [Piece::Field { padded: false, .. }, Piece::Field { .. }] => true,
        [Piece::Field { padded: false, .. }, Piece::Text(text)] => text.starts_with(|c: char| c.is_ascii_digit()),
        _ => false,
    });
    if ambiguous {
        return Err("a field without leading zeros is followed by a digit, so names cannot be told apart; \
                    expected %m, %d or %H there"
            .to_owned());
    }
    Ok(unit)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn template(text: &str) -> Template {
        match SourcePath::parse(text) {
            Ok(SourcePath::Template(template)) => template,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn paths_are_told_apart_and_tidied() {
        let parse = |text| SourcePath::parse(text).unwrap();
        assert_eq!(parse("./data//a.parquet"), SourcePath::Plain("data/a.parquet".to_owned()));
        assert_eq!(parse("/data/../100%%.parquet"), SourcePath::Plain("/data/../100%.parquet".to_owned()));
        assert_eq!(parse("HTTP://H/./a%%20b//c?d="), SourcePath::Plain("http://h/./a%20b//c?d=".to_owned()));
        assert_eq!(parse("data/**/[ab]?.parquet"), SourcePath::Glob("data/**/[ab]?.parquet".to_owned()));
        for (text, unit) in [
            ("%Y", TemplateUnit::Year),
            ("%m/%Y", TemplateUnit::Month),
            ("%Y/%-m/%-d", TemplateUnit::Day),
            ("%Y%m%dT%H", TemplateUnit::Hour),
        ] {
            assert_eq!(template(text).unit, unit);
        }
    }

    #[test]
    fn wrong_paths_say_why() {
        for (text, reason) in [
            ("", "expected a path"),
            ("a-%b", "%b is no field, expected %Y"),
            ("a%", "% is no field"),
            ("%-Y", "%-Y is no field"),
            ("%Y-%d", "without a gap"),
            ("%m", "without a gap"),
            ("%Y-%m/*.parquet", "has both * ? [ and strftime fields"),
            ("a***", "is no glob"),
            ("[a", "is no glob"),
            ("in/**", "in/** matches folders alone, expected in/**/* for all files"),
            ("in/**/", "expected in/**/*"),
            ("%Y%-m%d", "names cannot be told apart"),
            ("%Y-%-m1", "names cannot be told apart"),
            ("https://h/a%20b", "%2 is no field"),
            ("https://h/%Y-%m/*.parquet", "no server lists"),
        ] {
            let error = SourcePath::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn names_come_back_to_their_period_and_no_other_name_does() {
        for (text, path) in [
            ("data/y_%Y-%m.parquet", "data/y_2024-02.parquet"),
            ("%Y/%-m/%-d/%H.parquet", "2024/2/29/07.parquet"),
            ("%Y/%Y-%m-%d%%", "2024/2024-02-29%"),
            ("raw/%Y-%m-%d-%-H.json.gz", "raw/2015-01-01-0.json.gz"),
            ("raw/%Y-%m-%d-%-H.json.gz", "raw/2015-01-01-23.json.gz"),
            ("https://h/%Y-%m-%d-%-H.json.gz?day=%d", "https://h/2015-01-02-0.json.gz?day=02"),
        ] {
            let template = template(text);
            let index = template.index_of(path).unwrap();
            assert_eq!(template.path(index).as_deref(), Some(path));
            if !url::is_url(text) {
                assert!(glob::Pattern::new(&template.glob()).unwrap().matches(path), "{}", template.glob());
            }
        }
        let months = template("y%Y-%m");
        assert_eq!(months.index_of("y2024-02"), Some(2024 * 12 + 1));
        for other in ["y2024-13", "y0000-01", "y2024-2", "y2024-02x", "x2024-02", "y2024-é"] {
            assert_eq!(months.index_of(other), None, "{other}");
        }
        let hours = template("%Y-%m-%d-%-H.gz");
        for other in ["2015-01-01-24.gz", "2015-01-01-00.gz", "2015-01-01-.gz", "2015-01-01-1.gz.part"] {
            assert_eq!(hours.index_of(other), None, "{other}");
        }
        assert_eq!(template("%Y/%Y").index_of("2024/2023"), None);
        assert_eq!(template("%Y-%-m").index_of("2024-02"), None);
        assert_eq!(template("%Y-%m-%d").index_of("2023-02-29"), None);
    }
}
