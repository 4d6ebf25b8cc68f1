//! The bytes of a file, decompressed as they are asked for.

use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUFFER_BYTES: usize = 128 << 10;

/// The text of a file.
pub(super) struct Input {
    text: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Input {
    /// Several members or frames, one after the other, are one text.
    pub(super) fn open(input: Box<dyn Read + Send>, path: &str) -> io::Result<Self> {
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { input, bytes: Arc::clone(&bytes) };
        let text: Box<dyn Read + Send> = if path.ends_with(".gz") {
            let buffered = BufReader::with_capacity(BUFFER_BYTES, counted);
            Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
        } else if path.ends_with(".zst") {
            Box::new(zstd::stream::read::Decoder::new(counted)?)
        } else {
            Box::new(counted)
        };
        Ok(Self { text, bytes })
    }

    /// The bytes taken from the file, before they were decompressed.
    pub(super) fn taken(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.text.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

struct Counted {
    input: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
