//! What a run would read if it began now, for those who ask before they submit it.

use super::{Listing, PlannedFile, Serves, look, own_indexes};
use crate::pipeline::url::{shown, shown_in};
use crate::pipeline::{Definition, SourcePath};
use crate::run::{RunError, Scope};

/// The files that a run would read if it began now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreseen {
    /// Those that are there, each once, sorted by path.
    pub files: Vec<ForeseenFile>,
    /// What is not there, in words; while it is not, the run fails.
    pub missing: Vec<String>,
}

/// A file that a run would read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeseenFile {
    /// Its path as the pipeline names it; of a URL without its query.
    pub path: String,
    /// Its size; none where nobody was asked for it.
    pub bytes: Option<u64>,
    /// Whether it is read for late rows alone: it is no partition's own.
    pub neighbour: bool,
}

/// Foresees the files of a run. `bytes` tells the size of a file that the listing has.
pub fn foresee(
    definition: &Definition,
    scope: &Scope,
    listing: &dyn Listing,
    bytes: impl Fn(&str) -> Option<u64>,
) -> Result<Foreseen, RunError> {
    let (plan, missing) =
        look(definition, scope, listing).map_err(|error| RunError { detail: shown_in(&error.detail), ..error })?;
    let file = |planned: &PlannedFile| ForeseenFile {
        path: shown(&planned.path).to_owned(),
        bytes: bytes(&planned.path),
        neighbour: is_neighbour(definition, planned),
    };
    Ok(Foreseen {
        files: plan.files.iter().map(file).collect(),
        missing: missing.iter().map(|text| shown_in(text)).collect(),
    })
}

/// In `full` every file of a template is the own one of a partition, and without a template every file is.
fn is_neighbour(definition: &Definition, file: &PlannedFile) -> bool {
    let Serves::Keys(keys) = &file.serves else { return false };
    let templates = definition.source.paths.iter().filter_map(|path| match path {
        SourcePath::Template(template) => Some((template, template.index_of(&file.path)?)),
        SourcePath::Plain(_) | SourcePath::Glob(_) => None,
    });
    let found: Vec<_> = templates.collect();
    let mut periods = keys.iter().filter_map(|key| definition.partition.period(key));
    !periods.any(|period| found.iter().any(|(template, index)| own_indexes(template, period).contains(index)))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::partition::PartitionKey;

    /// Files of so many bytes as their paths have; URLs count as there, and nobody knows their size.
    struct Disk(&'static [&'static str]);

    impl Listing for Disk {
        fn are_files(&self, paths: &[String]) -> Result<Vec<bool>, RunError> {
            Ok(paths.iter().map(|path| path.starts_with("https:") || self.0.contains(&path.as_str())).collect())
        }

        fn glob(&self, _: &str) -> Result<Vec<String>, RunError> {
            Ok(self.0.iter().map(ToString::to_string).collect())
        }
    }

    fn foreseen(path: &str, scope: &Scope, disk: &Disk) -> (Vec<String>, Vec<String>) {
        let text = format!(
            "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"{path}\"\nneighbours = 1\n[source.columns]\n\
             at = \"datetime\"\n[partition]\nm = {{ month_of = \"at\" }}\n[measures]\nn = \"count(*)\"\n"
        );
        let definition = crate::pipeline::parse(&text, "t").unwrap_or_else(|errors| unreachable!("{errors:?}"));
        let bytes = |path: &str| disk.0.contains(&path).then_some(path.len() as u64);
        let Foreseen { files, missing } = foresee(&definition, scope, disk, bytes).unwrap();
        let short = |file: &ForeseenFile| {
            let bytes = file.bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
            format!("{} {bytes}{}", file.path, if file.neighbour { " neighbour" } else { "" })
        };
        (files.iter().map(short).collect(), missing)
    }

    fn months(months: &[&str]) -> Scope {
        Scope::Partitions(months.iter().map(|m| PartitionKey::from_canonical(format!("m={m}"))).collect())
    }

    #[test]
    fn neighbours_are_told_from_own_files_and_what_is_missing_is_named() {
        let disk = Disk(&["t_2024-01", "t_2024-02", "t_2024-04"]);
        let (files, missing) = foreseen("t_%Y-%m", &months(&["2024-02", "2024-03"]), &disk);
        assert_eq!(files, ["t_2024-01 9 neighbour", "t_2024-02 9", "t_2024-04 9 neighbour"]);
        assert_eq!(missing, ["t_2024-03 does not exist, and m=2024-03 needs it"]);
        let (files, missing) = foreseen("t_%Y-%m", &Scope::Full, &disk);
        assert_eq!(files, ["t_2024-01 9", "t_2024-02 9", "t_2024-04 9"]);
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn files_of_other_servers_are_named_without_their_queries() {
        let (files, missing) = foreseen("https://h/%Y-%m?token=s", &months(&["2024-02"]), &Disk(&[]));
        assert_eq!(files, ["https://h/2024-01 ? neighbour", "https://h/2024-02 ?", "https://h/2024-03 ? neighbour"]);
        assert_eq!(missing, [""; 0]);
    }
}
