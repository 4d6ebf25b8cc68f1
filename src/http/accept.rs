//! Which media types a client takes (RFC 9110, 12.5.1).

use axum::http::{HeaderMap, header};

/// What a client weighs media types by.
pub(super) struct Accept<'a>(Vec<Range<'a>>);

impl<'a> Accept<'a> {
    /// What the request says.
    pub(super) fn of(request: &'a HeaderMap) -> Self {
        let texts = request.get_all(header::ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        Self(texts.flat_map(|text| text.split(',')).filter_map(Range::read).collect())
    }

    /// Whether it says nothing.
    pub(super) fn is_silent(&self) -> bool {
        self.0.is_empty()
    }

    /// The weight of a media type: what the closest range says, 0 where none takes it, 1 where the request says nothing.
    pub(super) fn weight(&self, name: &str) -> f32 {
        if self.is_silent() {
            return 1.0;
        }
        let close = self.0.iter().filter_map(|range| Some((range.closeness(name)?, range.weight)));
        close.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))).map_or(0.0, |(_, weight)| weight)
    }
}

/// A range of media types with its weight.
struct Range<'a> {
    name: &'a str,
    weight: f32,
}

impl<'a> Range<'a> {
    /// Other parameters than the weight are passed over.
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let name = parts.next().filter(|name| !name.is_empty())?;
        let weight = parts.find_map(|part| {
            let (parameter, value) = part.split_once('=')?;
            parameter.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().unwrap_or(0.0))
        });
        Some(Self { name, weight: weight.unwrap_or(1.0).clamp(0.0, 1.0) })
    }

    /// How closely it names a media type: 3 for itself, 2 for its kind, 1 for anything; none where it does not.
    fn closeness(&self, name: &str) -> Option<u8> {
        let kind = name.split_once('/').map_or(name, |(kind, _)| kind);
        if self.name.eq_ignore_ascii_case(name) {
            Some(3)
        } else if self.name.strip_suffix("/*").is_some_and(|asked| asked.eq_ignore_ascii_case(kind)) {
            Some(2)
        } else {
            (self.name == "*/*").then_some(1)
        }
    }
}
