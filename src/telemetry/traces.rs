//! Traces by OpenTelemetry, where an endpoint is given; without one there is no layer, and spans cost what they cost the logs.
//!
//! The context of a caller comes as W3C `traceparent`; what a run keeps of it is the same text, so that an attempt on another server
//! is in the same trace.

use super::spool::Spool;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// How long the collector may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long the end of the process waits for the last spans to be sent.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);
/// Below the endpoint, by the convention of OTLP over HTTP.
const PATH: &str = "/v1/traces";

/// Where spans are sent. Its headers are secrets, so that it is never shown.
pub struct OtlpOptions {
    /// The collector, e.g. `http://127.0.0.1:4318`; spans go to `/v1/traces` below it.
    pub endpoint: String,
    /// Headers to be sent, by name.
    pub headers: HashMap<String, String>,
}

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be sent to {endpoint}: {why}")]
pub struct OtlpError {
    endpoint: String,
    why: String,
}

/// Spans are sent as long as this is kept.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

impl Traces {
    /// Begins to send. `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` and its argument,
    /// `OTEL_EXPORTER_OTLP_HEADERS` and the limits of spans are honoured.
    pub fn start(options: OtlpOptions) -> Result<Self, OtlpError> {
        let endpoint = format!("{}{PATH}", options.endpoint.trim_end_matches('/'));
        let failed =
            |why: &dyn std::fmt::Display| OtlpError { endpoint: options.endpoint.clone(), why: why.to_string() };
        // What counts spans must be there before them.
        super::metrics();
        // A second time changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(ANSWERS_WITHIN)
            .with_headers(options.headers.clone())
            .build()
            .map_err(|error| failed(&error))?;
        let spool = Spool::of(exporter).map_err(|error| failed(&error))?;
        let named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
        let resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let resource = if named { resource } else { resource.with_service_name("refrain") };
        let provider = SdkTracerProvider::builder().with_resource(resource.build()).with_span_processor(spool).build();
        let tracer = provider.tracer("refrain");
        let _ = TRACER.set(tracer.clone());
        Ok(Self { provider, tracer })
    }

    /// What takes the spans of Refrain's own code.
    pub(super) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(&self) -> impl Layer<S> {
        let own = Targets::new().with_target("refrain", LevelFilter::INFO);
        tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(own)
    }
}

impl Drop for Traces {
    /// Sends what is left, within two seconds.
    fn drop(&mut self) {
        if self.provider.shutdown_with_timeout(FLUSHED_WITHIN).is_err() {
            tracing::warn!("the last spans could not be sent in time");
        }
    }
}

/// Makes the span a child of what a caller's, or a run's, `traceparent` names, before it is entered. One that cannot be read is
/// ignored.
pub fn told_by(span: &tracing::Span, traceparent: Option<&str>) {
    if TRACER.get().is_some()
        && let Some(parent) = traceparent.and_then(parse)
    {
        // Where the span is filtered out there is nothing to be a child.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// The `traceparent` that stands for where this code is: its span, or without traces what the caller sent, if that can be read.
pub fn traceparent(sent: Option<&str>) -> Option<String> {
    let current = tracing::Span::current().context().span().span_context().clone();
    let context = if current.is_valid() { Some(current) } else { sent.and_then(parse) };
    context.map(|context| {
        let flags = context.trace_flags() & TraceFlags::SAMPLED;
        format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), flags.to_u8())
    })
}

/// Names a span after what it turned out to be, and says so of the side that it is on, where there are traces. Without them
/// these fields would only be noise in the logs.
pub fn entered(span: &tracing::Span, name: &str, kind: &str) {
    if TRACER.get().is_some() {
        span.record("otel.name", name);
        span.record("otel.kind", kind);
    }
}

/// Notes in the current span how its request was answered.
pub fn answered(route: &str, status: u16) {
    if TRACER.get().is_some() {
        let span = tracing::Span::current();
        span.set_attribute("http.route", route.to_owned());
        span.set_attribute("http.response.status_code", i64::from(status));
        if status >= 500 {
            span.set_status(Status::error(""));
        }
    }
}

/// A span that is over, below the current one.
pub fn past_span(name: &'static str, since: SystemTime) {
    if let Some(tracer) = TRACER.get() {
        let parent = tracing::Span::current().context();
        let builder = tracer.span_builder(name).with_start_time(since);
        builder.start_with_context(tracer, &parent).end();
    }
}

/// Reads a `traceparent` (W3C Trace Context, level 1, or a later version that begins like it).
fn parse(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, digits| {
        text.len() == digits && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let well_formed = is_hex(version, 2) && is_hex(trace, 32) && is_hex(span, 16) && is_hex(flags, 2);
    if !well_formed || version == "ff" || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_taken_over_or_ignored() {
        assert_eq!(traceparent(Some(GOOD)).as_deref(), Some(GOOD));
        assert_eq!(
            traceparent(Some("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-later")).as_deref(),
            Some(GOOD)
        );
        let bad = [
            "",
            "00",
            "nonsense",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
        ];
        for bad in bad {
            assert_eq!(traceparent(Some(bad)), None, "{bad}");
        }
        assert_eq!(traceparent(None), None);
    }
}
