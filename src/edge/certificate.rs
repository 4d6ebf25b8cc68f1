//! When a certificate ends: the one field of it that is read here (RFC 5280, 4.1).

use chrono::{DateTime, NaiveDateTime, Utc};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// The `notAfter` of a certificate in DER; none where it is none.
pub(super) fn ends_at(der: &[u8]) -> Option<DateTime<Utc>> {
    let (certificate, _) = expect(der, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    // The serial number, the signature's algorithm and the issuer.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        fields = expect(fields, tag)?.1;
    }
    let (validity, _) = expect(fields, SEQUENCE)?;
    let (_, _, not_after) = element(validity)?;
    let (tag, text, _) = element(not_after)?;
    time(tag, std::str::from_utf8(text).ok()?)
}

fn time(tag: u8, text: &str) -> Option<DateTime<Utc>> {
    let full = match tag {
        // Two digits are of the years 1950 to 2049.
        UTC_TIME if text.get(..2)? >= "50" => format!("19{text}"),
        UTC_TIME => format!("20{text}"),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    NaiveDateTime::parse_from_str(&full, "%Y%m%d%H%M%SZ").ok().map(|time| time.and_utc())
}

/// The content of an element with this tag, and what comes after it.
fn expect(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(der)?;
    (found == tag).then_some((content, rest))
}

/// The first element: its tag, its content and what comes after it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(first), rest),
        _ => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            // A certificate is not longer than four bytes can say.
            let length = (bytes.len() <= 4).then(|| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))?;
            (length, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn made(year: i32) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut asked = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        asked.not_after = rcgen::date_time_ymd(year, 3, 9);
        asked.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_read_in_either_form() {
        for year in [2031, 2049, 2050, 2199] {
            assert_eq!(ends_at(&made(year)).unwrap().to_rfc3339(), format!("{year}-03-09T00:00:00+00:00"));
        }
        assert_eq!(time(UTC_TIME, "991231235959Z").unwrap().to_rfc3339(), "1999-12-31T23:59:59+00:00");
    }

    #[test]
    fn what_is_cut_off_has_no_end() {
        let whole = made(2031);
        for length in 0..whole.len() {
            let _ = ends_at(&whole[..length]);
        }
        assert_eq!(ends_at(&whole[..40]), None);
        assert_eq!(ends_at(&[SEQUENCE, 0xff, 1, 2, 3]), None);
    }
}
