//! `GET /pipelines/{name}/data/{key}`: a partition's file as it is, or its rows as csv, JSON or ndjson.

mod accept;
mod files;
mod range;

pub use files::{FilesError, OpenedFile, PartitionFiles, RowStream, RowsAs, RowsAsked};

use super::fair::Place;
use super::params::{Params, invalid};
use super::problem::{Problem, ProblemDetails};
use super::{Api, Caller, Server, answer};
use crate::partition::PartitionKey;
use crate::run::CatalogEntry;
use accept::Form;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use range::Asked;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt, SeekFrom};
use utoipa_axum::{router::OpenApiRouter, routes};

/// How often a file is looked at that is not the catalog's: a run is between its moves and its end, for moments.
const LOOKS: u32 = 6;
/// The pause after the first look; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How much of a file is read at once.
const CHUNK_BYTES: u64 = 256 << 10;
/// What stands as it is in the extended form of a file's name (RFC 8187).
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(get))
}

/// Gives the data of a partition: its file as it is, or its rows in another format.
///
/// What was opened is read to its end, also while a run replaces it; its digest is that of the catalog.
#[utoipa::path(get, path = "/pipelines/{name}/data/{*key}", operation_id = "get_data", tag = "pipelines",
    params(
        ("name" = String, Path, description = "The pipeline's name", example = "zone_hour"),
        ("key" = String, Path, description = "The canonical key, percent-encoded once; its slashes may stay",
            example = "pickup_month=2024-02"),
        ("columns" = Option<String>, Query, description = "Of the rows these columns alone, by commas, in this order"),
        ("limit" = Option<u64>, Query, description = "At most that many rows, from the first on", minimum = 1),
        ("Accept" = Option<String>, Header, description = "`application/vnd.apache.parquet` (of csv tables `text/csv`, \
            `application/gzip` or `application/zstd`) for the file as it is, which is also what comes where nothing is said; \
            `text/csv`, `application/json` or `application/x-ndjson` for its rows. With `columns` or `limit` the file as it is is \
            none of the choices, and JSON comes where nothing is said"),
        ("Range" = Option<String>, Header, description = "A part of the file as it is"),
        ("If-Range" = Option<String>, Header, description = "The tag of the file that the range is for"),
        ("If-None-Match" = Option<String>, Header, description = "The tag of an earlier answer"),
    ),
    responses(
        (status = 200, description = "The file, or its rows", content(
            (String = "application/vnd.apache.parquet"),
            (String = "text/csv"),
            (Vec<std::collections::BTreeMap<String, serde_json::Value>> = "application/json"),
            (String = "application/x-ndjson"),
            (String = "application/gzip"),
            (String = "application/zstd"),
        ), headers(
            ("ETag" = String, description = "Of the file as it is, the sha256 of its bytes"),
            ("Last-Modified" = String, description = "When the run that wrote it finished"),
            ("Content-Disposition" = String, description = "A name for the file"),
        )),
        (status = 206, description = "The part of the file that was asked for", content(
            (String = "application/vnd.apache.parquet"),
            (String = "text/csv"),
            (String = "application/gzip"),
            (String = "application/zstd"),
        )),
        (status = 304, description = "The data is as the tag's answer had it"),
        (status = 400, description = "The query cannot be read, or names other columns than there are", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 404, description = "There is no such pipeline, or the partition is not there", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 406, description = "`Accept` has none of the formats", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 416, description = "The file ends before the range", body = ProblemDetails,
            content_type = "application/problem+json"),
        (status = 429, description = "As many readers of the principal are at work as may be, or it asks too often; `Retry-After` says \
            when to come back", body = ProblemDetails, content_type = "application/problem+json"),
        (status = 503, description = "The file is not what the catalog has: a run is publishing it, or others have changed it; too many \
            files are being read; or the database or the warehouse is away", body = ProblemDetails,
            content_type = "application/problem+json"),
    ),
)]
async fn get(
    State(api): State<Server>,
    Path((name, key)): Path<(String, String)>,
    caller: Caller,
    method: Method,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    params.only(&["columns", "limit"])?;
    let cut = Cut::of(&params)?;
    api.pipeline(&caller, &name)?;
    let key = PartitionKey::from_canonical(key);
    let (entry, opened) = current(&api, &name, &key).await?;
    let forms = accept::forms(entry.content.file, cut.is_any());
    let form = accept::choose(&headers, &forms)
        .ok_or_else(|| Problem::NotAcceptable { available: forms.iter().map(|form| form.media_type()).collect() })?;
    let tag = tag(&opened.sha256, form, &params);
    let mut response = match answer::if_known(&headers, &tag) {
        Some(known) => known,
        None => match form {
            Form::File(_) => whole_or_part(&headers, &tag, opened).await?,
            // Nobody would take the rows.
            Form::Rows(_) if method == Method::HEAD => StatusCode::OK.into_response(),
            Form::Rows(rows_as) => {
                rows(&api, api.fairness.reader(&caller)?, &entry, &name, opened, rows_as, cut).await?
            }
        },
    };
    describe(&mut response, form, &tag, &name, &entry);
    Ok(response)
}

/// What is left of a file's rows.
struct Cut {
    columns: Option<Vec<String>>,
    limit: Option<u64>,
}

impl Cut {
    fn of(params: &Params) -> Result<Self, Problem> {
        // As large as the description's int64 may be.
        let limit = params.read("limit", |text| match text.parse::<i64>().map(u64::try_from) {
            Ok(Ok(rows)) if rows > 0 => Ok(rows),
            _ => Err(format!("found {text:?}, expected a whole number from 1 to {}", i64::MAX)),
        })?;
        let columns = params.read("columns", |text| {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            let twice = names.iter().enumerate().find(|(at, name)| names.iter().take(*at).any(|other| other == *name));
            match twice {
                _ if names.iter().any(String::is_empty) => {
                    Err(format!("found {text:?}, expected names of columns by commas"))
                }
                Some((_, name)) => Err(format!("found the column {name:?} more than once, expected it once")),
                None => Ok(names),
            }
        })?;
        Ok(Self { columns, limit })
    }

    fn is_any(&self) -> bool {
        self.columns.is_some() || self.limit.is_some()
    }
}

/// The catalog's entry and the file that it describes, opened. A file that is another one is looked at again: between a run's move
/// and its end the file is new and the entry is old.
async fn current(api: &Api, name: &str, key: &PartitionKey) -> Result<(CatalogEntry, OpenedFile), Problem> {
    let absent = || Problem::NoSuchPartition { pipeline: name.to_owned(), partition: key.as_str().to_owned() };
    if key.as_str().contains(|c: char| c.is_ascii_control()) {
        // Canonical keys have these escaped, and not every database takes NUL.
        return Err(absent());
    }
    let mut pause = FIRST_PAUSE;
    for _ in 0..LOOKS {
        let entry = api.store.entries(name, Some(std::slice::from_ref(key))).await?.pop().ok_or_else(absent)?;
        if let Some(opened) = api.files.open(name, key, entry.content.file).await?
            && opened.sha256 == entry.content.sha256
        {
            return Ok((entry, opened));
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Err(Problem::FileDiffers { pipeline: name.to_owned(), partition: key.as_str().to_owned() })
}

/// The digest of the file as it is; of its rows, with a mark of what else they depend on.
fn tag(sha256: &str, form: Form, params: &Params) -> String {
    match form {
        Form::File(_) => format!("\"{sha256}\""),
        Form::Rows(_) => {
            let by = format!("{} {} {}", env!("CARGO_PKG_VERSION"), form.media_type(), params.canonical());
            format!("\"{sha256}-{}\"", &answer::digest(by.as_bytes())[..12])
        }
    }
}

async fn whole_or_part(request: &HeaderMap, tag: &str, opened: OpenedFile) -> Result<Response, Problem> {
    let bytes = opened.bytes;
    let (status, part) = match range::asked(request, tag, bytes) {
        Asked::Beyond => return Err(Problem::RangeNotSatisfiable(bytes)),
        Asked::Whole => (StatusCode::OK, 0..bytes),
        Asked::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
    };
    let mut file = tokio::fs::File::from_std(opened.file);
    file.seek(SeekFrom::Start(part.start)).await.map_err(|error| {
        tracing::error!(%error, "a partition's file cannot be read");
        Problem::Internal
    })?;
    let length = part.end - part.start;
    let mut response = (status, Body::from_stream(read(file, length))).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length.into());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == StatusCode::PARTIAL_CONTENT {
        insert(headers, header::CONTENT_RANGE, &format!("bytes {}-{}/{bytes}", part.start, part.end.saturating_sub(1)));
    }
    Ok(response)
}

/// So many bytes of a file. One that ends before was changed by others; the client is told by a broken connection.
fn read(file: tokio::fs::File, length: u64) -> impl futures::Stream<Item = io::Result<Bytes>> {
    futures::stream::try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let most = left.min(CHUNK_BYTES);
        let mut chunk = Vec::with_capacity(usize::try_from(most).unwrap_or_default());
        let read = (&mut file).take(most).read_buf(&mut chunk).await?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        Ok(Some((Bytes::from(chunk), (file, left - read as u64))))
    })
}

async fn rows(
    api: &Api,
    place: Place,
    entry: &CatalogEntry,
    name: &str,
    opened: OpenedFile,
    rows_as: RowsAs,
    Cut { columns, limit }: Cut,
) -> Result<Response, Problem> {
    let definition = definition(api, entry, name).await?;
    let asked = RowsAsked { file: entry.content.file, definition, rows_as, columns, limit };
    match api.files.rows(opened.file, asked).await {
        Ok(rows) => {
            // The place is taken until the last of them.
            let held = rows.inspect(move |_| {
                let _until_the_end = &place;
            });
            Ok(Body::from_stream(held).into_response())
        }
        Err(FilesError::UnknownColumns(detail)) => Err(invalid("columns", &detail)),
        Err(other) => Err(other.into()),
    }
}

/// The text of the definition that an entry is right for.
async fn definition(api: &Api, entry: &CatalogEntry, name: &str) -> Result<String, Problem> {
    if let Some(current) = api.definition(name).filter(|current| current.hash == entry.definition) {
        return Ok(current.text.clone());
    }
    let written = api.store.definitions(std::slice::from_ref(&entry.definition)).await?.pop();
    written.map(|written| written.text).ok_or_else(|| {
        tracing::error!(definition = %entry.definition, partition = %entry.partition, "the catalog's definition is not there");
        Problem::Internal
    })
}

fn describe(response: &mut Response, form: Form, tag: &str, name: &str, entry: &CatalogEntry) {
    let is_known = response.status() == StatusCode::NOT_MODIFIED;
    let headers = response.headers_mut();
    if !is_known {
        insert(headers, header::ETAG, tag);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form.media_type()));
        insert(headers, header::CONTENT_DISPOSITION, &disposition(name, entry.partition.as_str(), form.extension()));
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    insert(headers, header::LAST_MODIFIED, &entry.committed_at.format("%a, %d %b %Y %H:%M:%S GMT").to_string());
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// A name that tells table and partition: in ASCII for old clients, and to the letter.
fn disposition(pipeline: &str, partition: &str, extension: &str) -> String {
    let name = format!("{pipeline}.{}.{extension}", partition.replace('/', "."));
    let in_ascii: String = name
        .chars()
        .map(|c| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '%' | '/') { c } else { '_' })
        .collect();
    format!("attachment; filename=\"{in_ascii}\"; filename*=UTF-8''{}", utf8_percent_encode(&name, PLAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_table_and_partition() {
        assert_eq!(
            disposition("hourly", "date=2024-02-29/hour=05", "parquet"),
            "attachment; filename=\"hourly.date=2024-02-29.hour=05.parquet\"; \
             filename*=UTF-8''hourly.date%3D2024-02-29.hour%3D05.parquet"
        );
        assert_eq!(
            disposition("k", "kind=é%2F\"", "csv"),
            "attachment; filename=\"k.kind=__2F_.csv\"; filename*=UTF-8''k.kind%3D%C3%A9%252F%22.csv"
        );
    }
}
