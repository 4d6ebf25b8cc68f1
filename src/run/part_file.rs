//! The name of a partition's one data file.

use serde::{Deserialize, Serialize};

/// The name of a partition's one data file in its folder: it says what is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PartFile {
    /// `part-0.parquet`; what was stored before there were others is one.
    #[default]
    #[serde(rename = "part-0.parquet")]
    Parquet,
    /// `part-0.csv`
    #[serde(rename = "part-0.csv")]
    Csv,
    /// `part-0.csv.gz`
    #[serde(rename = "part-0.csv.gz")]
    CsvGzip,
    /// `part-0.csv.zst`
    #[serde(rename = "part-0.csv.zst")]
    CsvZstd,
}

impl PartFile {
    /// Every name that Refrain gives.
    pub const ALL: [PartFile; 4] = [PartFile::Parquet, PartFile::Csv, PartFile::CsvGzip, PartFile::CsvZstd];

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            PartFile::Parquet => "part-0.parquet",
            PartFile::Csv => "part-0.csv",
            PartFile::CsvGzip => "part-0.csv.gz",
            PartFile::CsvZstd => "part-0.csv.zst",
        }
    }

    /// What the name ends in, without the first dot.
    pub fn extension(self) -> &'static str {
        self.as_str().split_once('.').map_or("", |(_, extension)| extension)
    }

    /// Whether it is what content without a name has.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The file of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file| file.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_everywhere_and_old_content_is_parquet() {
        for file in PartFile::ALL {
            assert_eq!(serde_json::to_value(file).ok(), Some(file.as_str().into()));
            assert_eq!(PartFile::parse(file.as_str()), Some(file));
        }
        assert_eq!(PartFile::ALL.map(PartFile::extension), ["parquet", "csv", "csv.gz", "csv.zst"]);
        let stored = r#"{"rows":1,"totals":[],"source_rows":1,"bytes":1,"sha256":""}"#;
        let content: Option<crate::run::Content> = serde_json::from_str(stored).ok();
        assert_eq!(content.as_ref().map(|content| content.file), Some(PartFile::Parquet));
        assert_eq!(content.and_then(|content| serde_json::to_string(&content).ok()).as_deref(), Some(stored));
    }
}
