//! `[table]`: formats and compressions, and what they make of the hash.

#![expect(clippy::panic, reason = "a test that cannot go on should say where")]

use super::parse;
use crate::pipeline::{Definition, OutputFormat, ParquetCompression, TextCompression};
use crate::run::{ForeignFiles, PartFile};

fn load(table: &str) -> Result<Definition, String> {
    let text = format!(
        "name = \"t\"\n[source]\nformat = \"parquet\"\npath = \"in\"\n[source.columns]\nat = \"date\"\n[partition]\n\
         day = {{ value_of = \"at\" }}\n[measures]\nn = \"count(*)\"\n{table}"
    );
    parse(&text, "t").map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

fn good(table: &str) -> Definition {
    load(table).unwrap_or_else(|errors| panic!("{table}: {errors}"))
}

#[test]
fn a_table_is_parquet_unless_it_says_otherwise() {
    let parquet = |compression, row_group_rows| OutputFormat::Parquet { compression, row_group_rows };
    let csv = |compression| OutputFormat::Csv { compression };
    for (table, format, file) in [
        ("", parquet(ParquetCompression::Zstd, 262_144), PartFile::Parquet),
        ("compression = \"snappy\"", parquet(ParquetCompression::Snappy, 262_144), PartFile::Parquet),
        ("compression = \"lz4\"\nrow_group_rows = 7", parquet(ParquetCompression::Lz4, 7), PartFile::Parquet),
        ("format = \"csv\"", csv(TextCompression::None), PartFile::Csv),
        ("format = \"csv\"\ncompression = \"gzip\"", csv(TextCompression::Gzip), PartFile::CsvGzip),
        ("format = \"csv\"\ncompression = \"zstd\"", csv(TextCompression::Zstd), PartFile::CsvZstd),
    ] {
        let definition = good(&format!("[table]\n{table}"));
        assert_eq!((definition.output.format, definition.output.part_file()), (format, file), "{table}");
        assert_eq!((definition.output.manifest, definition.foreign_files), (false, ForeignFiles::Fail));
    }
    assert!(good("[table]\nmanifest = true").output.manifest);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (table, expected) in [
        ("format = \"orc\"", "t: table.format: expected \"parquet\" or \"csv\", found \"orc\""),
        (
            "compression = \"brotli\"",
            "t: table.compression: expected one of zstd, snappy, gzip, lz4, none for format = \"parquet\", found \"brotli\"",
        ),
        (
            "format = \"csv\"\ncompression = \"snappy\"",
            "t: table.compression: expected one of none, gzip, zstd for format = \"csv\", found \"snappy\"",
        ),
        (
            "format = \"csv\"\nrow_group_rows = 1",
            "t: table.row_group_rows: is for format = \"parquet\", found it with format = \"csv\"",
        ),
        ("row_group_rows = 0", "t: table.row_group_rows: expected a whole number from 1 to 16777216, found 0"),
        ("manifest = \"yes\"", "t: table.manifest: expected true or false, found the text \"yes\""),
        (
            "zip = 1",
            "t: table.zip: unknown key, expected one of foreign_files, format, compression, row_group_rows, manifest",
        ),
    ] {
        assert_eq!(load(&format!("[table]\n{table}")).err().as_deref(), Some(expected), "{table}");
    }
}

#[test]
fn only_what_is_not_usual_is_in_the_hash() {
    let hash = |table: &str| good(&format!("[table]\n{table}")).hash;
    let usual = good("").hash;
    for same in [
        "",
        "format = \"parquet\"",
        "compression = \"zstd\"\nrow_group_rows = 262144",
        "manifest = false\nforeign_files = \"fail\"",
    ] {
        assert_eq!(hash(same), usual, "{same}");
    }
    assert_eq!(hash("format = \"csv\"\ncompression = \"none\""), hash("format = \"csv\""));
    let mut seen = vec![usual];
    for other in [
        "compression = \"none\"",
        "compression = \"gzip\"",
        "row_group_rows = 1000",
        "format = \"csv\"",
        "format = \"csv\"\ncompression = \"gzip\"",
        "manifest = true",
        "format = \"csv\"\nmanifest = true",
    ] {
        let hash = hash(other);
        assert!(!seen.contains(&hash), "{other}");
        seen.push(hash);
    }
}
