//! What is wrong with a file as a whole, compression, and bounds.

use super::*;
use std::io::Write;

const AB: &str = "a = \"int32\"\nb = \"string\"";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text).unwrap();
    gz.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ::zstd::stream::encode_all(text, 1).unwrap()
}

#[test]
fn compressed_text_is_the_same_text() {
    let source = csv_of("", AB);
    let (first, second) = ("a,b\n1,x\n2,", "y\n3,z\n");
    let expected = ["2: 1|x", "3: 2|y", "4: 3|z"];
    let plain = format!("{first}{second}");
    assert_eq!(shown(&source, "x.csv", plain.as_bytes()).unwrap(), expected);
    assert_eq!(shown(&source, "x.csv.gz", &gzip(plain.as_bytes())).unwrap(), expected);
    assert_eq!(shown(&source, "x.csv.zst", &zstd(plain.as_bytes())).unwrap(), expected);
    let members = [gzip(first.as_bytes()), gzip(second.as_bytes())].concat();
    assert_eq!(shown(&source, "x.csv.gz", &members).unwrap(), expected, "several members are one text");
    let frames = [zstd(first.as_bytes()), zstd(second.as_bytes())].concat();
    assert_eq!(shown(&source, "x.csv.zst", &frames).unwrap(), expected);
}

#[test]
fn an_empty_file_is_an_error_of_the_file() {
    let sources =
        [csv_of("", AB), csv_of("header = false", "a = { type = \"int32\", position = 1 }"), source("ndjson", "", AB)];
    for source in &sources {
        for (path, bytes) in
            [("x", vec![]), ("x.gz", vec![]), ("x.gz", gzip(b"")), ("x.zst", vec![]), ("x.zst", zstd(b""))]
        {
            let error = shown(source, path, &bytes).unwrap_err();
            let expected = format!("{path}: is empty, expected rows; it may be still being written");
            assert!(matches!(&error, TextError::Unreadable(detail) if *detail == expected), "{path}: {error}");
        }
    }
    assert_eq!(error(&sources[0], "x", b"\n\r\n"), "x: has only blank lines, expected a header");
    for source in &sources[1..] {
        assert_eq!(
            error(source, "x", b"\xef\xbb\xbf\n\r\n"),
            "x: is empty, expected rows; it may be still being written"
        );
    }
}

#[test]
fn a_stream_that_is_cut_short_says_how_far_it_was_read() {
    let source = csv_of("", AB);
    let mut seed = 1u32;
    let lines = (0..5000).map(|n| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{n},{seed}\n")
    });
    let text = format!("a,b\n{}", lines.collect::<String>());
    for (path, whole) in [("x.gz", gzip(text.as_bytes())), ("x.zst", zstd(text.as_bytes()))] {
        for length in [whole.len() - 1, whole.len() / 2, 12] {
            let error = shown_in_batches(&source, path, &whole[..length], 100).unwrap_err();
            let detail = error.to_string();
            assert!(matches!(error, TextError::Unreadable(_)), "{detail}");
            assert!(detail.starts_with(&format!("{path}: cannot be read beyond ")), "{detail}");
            assert!(detail.contains(&format!(" rows, after {length} bytes of the file: ")), "{detail}");
            assert!(detail.ends_with("it may be cut short, or still being written"), "{detail}");
        }
    }
    let mut damaged = gzip(text.as_bytes());
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    assert!(matches!(shown_in_batches(&source, "x.gz", &damaged, 100), Err(TextError::Unreadable(_))));
    assert!(
        error(&source, "x.gz", text.as_bytes()).starts_with("x.gz: cannot be read beyond 0 rows"),
        "no gzip at all"
    );
    let rest = [gzip(b"a,b\n"), b"rest".to_vec()].concat();
    assert!(error(&source, "x.gz", &rest).starts_with("x.gz: cannot be read beyond 0 rows"));
}

/// `length` times one byte, between a head and a tail, never all there at once.
struct Long {
    head: Cursor<Vec<u8>>,
    byte: u8,
    length: u64,
    tail: Cursor<Vec<u8>>,
}

impl Read for Long {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.head.read(buffer)?;
        if read > 0 || buffer.is_empty() {
            return Ok(read);
        }
        let read = buffer.len().min(usize::try_from(self.length).unwrap());
        buffer[..read].fill(self.byte);
        self.length -= read as u64;
        if read > 0 { Ok(read) } else { self.tail.read(buffer) }
    }
}

fn long(source: &Source, head: &str, byte: u8, length: u64, tail: &str) -> (Vec<String>, usize) {
    let [head, tail] = [head, tail].map(|text| Cursor::new(text.as_bytes().to_vec()));
    let mut file = TextFile::open(Box::new(Long { head, byte, length, tail }), "x", source).unwrap();
    let mut out = Vec::new();
    while let Some(batch) = file.next(1000).unwrap() {
        out.extend(rows_of(&batch, source.columns.len()));
    }
    (out, file.lines.window_bytes())
}

#[test]
fn a_line_that_is_too_long_costs_no_memory() {
    let hundred = 100 << 20;
    let (rows, window) = long(&csv_of("", AB), "a,b\n1,x\n2,", b'y', hundred, "\n3,z\n");
    let told = format!("3: -|- !has a line of {} bytes, expected at most {MAX_LINE_BYTES}", hundred + 2);
    assert_eq!(rows, ["2: 1|x", &told, "4: 3|z"]);
    assert!(window < 2 * MAX_LINE_BYTES, "{window}");
    let (rows, _) = long(&source("ndjson", "", AB), "{\"a\":1,\"b\":\"x\"}\n{\"b\":\"", b'y', hundred, "");
    let told = format!("2: -|- !has {} bytes, expected at most {MAX_LINE_BYTES}", hundred + 6);
    assert_eq!(rows, ["1: 1|x", &told]);
}

#[test]
fn a_quote_is_looked_for_no_further_than_a_record_may_be_long() {
    let (rows, window) = long(&csv_of("", AB), "a,b\n1,\"x\n2,y\n", b'\n', 100 << 20, "3,z\n");
    let told = format!("2: -|- !has a quote in field 2 that is not closed within {MAX_LINE_BYTES} bytes");
    assert_eq!(rows, [&told, "3: 2|y", &format!("{}: 3|z", (100 << 20) + 4)]);
    assert!(window < 2 * MAX_LINE_BYTES, "{window}");
}

#[test]
fn the_longest_line_is_taken() {
    let (rows, _) = long(&csv_of("", AB), "a,b\n1,", b'y', MAX_LINE_BYTES as u64 - 2, "\n2,z\n");
    assert_eq!((rows[0].len(), rows[1].as_str()), (MAX_LINE_BYTES - 2 + "2: 1|".len(), "3: 2|z"));
    let (rows, _) = long(&csv_of("", AB), "a,b\n1,", b'y', MAX_LINE_BYTES as u64 - 1, "\n2,z\n");
    assert!(rows[0].starts_with("2: -|- !has a line of 16777217 bytes"), "{}", &rows[0][..80]);
}

#[test]
fn batches_end_early_where_texts_are_long() {
    let line = format!("1,{}\n", "y".repeat(1 << 20));
    let text = format!("a,b\n{}", line.repeat(20));
    let mut file = TextFile::open(Box::new(Cursor::new(text.into_bytes())), "x", &csv_of("", AB)).unwrap();
    let mut sizes = Vec::new();
    while let Some(batch) = file.next(1000).unwrap() {
        sizes.push(batch.lines.len());
    }
    assert_eq!(sizes, [8, 8, 4]);
}
