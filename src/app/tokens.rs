//! `refrain token`: making, listing and revoking tokens, in the database itself.

use crate::access::{Token, TokenEnd, TokenId, TokenRecord, TokenScope, principal};
use crate::config::DatabaseSettings;
use crate::run::Principal;
use crate::store::{NewToken, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, TokenStore};
use anyhow::{Context, anyhow, bail};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use clap::{Args, Subcommand};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;

/// The most pipelines that a token may be for: each listing of runs asks for those of each.
const MAX_PIPELINES: usize = 100;

/// The longest name of a token.
const MAX_NAME_CHARS: usize = 100;

/// What to do about tokens, and where.
#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// Make a token and print it, alone and only this once; from then on every request needs one.
    #[command(after_help = NEW_HELP)]
    New(Box<NewArgs>),
    /// List the tokens, also those that have ended; their secrets are nowhere.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        database: DatabaseSettings,
    },
    /// Revoke a token, for good; its servers know within seconds.
    Revoke {
        /// Its id: what is between the two underscores of the token.
        id: String,
        #[command(flatten)]
        database: DatabaseSettings,
    },
}

const NEW_HELP: &str = "\
Examples:
  refrain token new --principal airflow --scope run > airflow.token
          submits runs, and cancels and retries its own
  refrain token new --principal mobility --scope read --pipelines zone_hour,zone_day --expires-days 90
          sees two pipelines, for 90 days
  refrain token new --principal ops --scope admin --name 'Ada, on call'
          cancels and retries everybody's runs

A principal is a name that keys and runs belong to; several tokens may be one principal's. What was submitted to a server
without tokens is the principal default's.";

#[derive(Debug, Args)]
struct NewArgs {
    /// Whose keys and runs those of its bearer are.
    #[arg(long, value_name = "NAME", value_parser = principal)]
    principal: Principal,
    /// What its bearer may do: read sees, run submits as well, admin changes everybody's runs as well.
    #[arg(long, value_name = "SCOPE", value_parser = scope)]
    scope: TokenScope,
    /// The only pipelines that there are for its bearer, by commas [default: all].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pipelines: Option<Vec<String>>,
    /// How many days it is one [default: until it is revoked].
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    expires_days: Option<u32>,
    /// What to call it by in listings.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    name: String,
    #[command(flatten)]
    database: DatabaseSettings,
}

fn scope(text: &str) -> Result<TokenScope, String> {
    TokenScope::parse(text).ok_or_else(|| "expected read, run or admin".to_owned())
}

/// Does what the arguments say.
pub async fn token_command(args: TokenArgs) -> anyhow::Result<()> {
    match args.verb {
        TokenVerb::New(args) => make(&args).await,
        TokenVerb::List { json, database } => list(&database, json).await,
        TokenVerb::Revoke { id, database } => revoke(&database, &id).await,
    }
}

async fn make(args: &NewArgs) -> anyhow::Result<()> {
    let pipelines = args.pipelines.as_deref().map(pipelines).transpose()?;
    if args.scope == TokenScope::Admin && pipelines.is_some() {
        bail!("found --pipelines with the scope admin, which is for all of them: expected the scope read or run");
    }
    if args.name.chars().count() > MAX_NAME_CHARS || args.name.contains(char::is_control) {
        bail!("found a --name that is longer than {MAX_NAME_CHARS} characters or has control characters in it");
    }
    let token = Token::of(&random()?);
    let record = NewToken {
        id: token.id().clone(),
        name: args.name.clone(),
        principal: args.principal.clone(),
        digest: token.digest(),
        scope: args.scope,
        pipelines,
        lifetime: args.expires_days.map(|days| TimeDelta::days(days.into())),
    };
    let record = open(&args.database).await?.put_token(&record).await.context("cannot keep the token")?;
    writeln!(std::io::stdout(), "{}", token.text().expose_secret())?;
    writeln!(
        std::io::stderr(),
        "{}\nit is shown this once; every request needs a token from now on",
        described(&record)
    )?;
    Ok(())
}

fn pipelines(names: &[String]) -> anyhow::Result<BTreeSet<String>> {
    let is_name = |name: &&String| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    match names.iter().find(|name| !is_name(name)) {
        Some(other) => bail!("found {other:?} in --pipelines, expected names of pipelines by commas"),
        None if names.len() > MAX_PIPELINES => {
            bail!("found {} pipelines, expected {MAX_PIPELINES} at most", names.len())
        }
        None => Ok(names.iter().cloned().collect()),
    }
}

/// Of the generator of the TLS library, which takes them from the kernel.
fn random() -> anyhow::Result<[u8; Token::RANDOM_BYTES]> {
    let mut bytes = [0; Token::RANDOM_BYTES];
    let filled = rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| anyhow!("this machine gives no random bytes, which a token is made of"))?;
    Ok(bytes)
}

async fn list(database: &DatabaseSettings, as_json: bool) -> anyhow::Result<()> {
    let tokens = open(database).await?.tokens().await.context("cannot read the tokens")?;
    let mut out = std::io::stdout();
    if as_json {
        let listed: Vec<Value> = tokens.records.iter().map(|record| as_object(record, tokens.now)).collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&listed)?)?;
    } else if tokens.records.is_empty() {
        writeln!(out, "there are no tokens")?;
    } else {
        for record in &tokens.records {
            let end = record.end(tokens.now).map_or("", end_word);
            writeln!(out, "{}{}{end}", described(record), if end.is_empty() { "" } else { ", " })?;
        }
    }
    Ok(())
}

async fn revoke(database: &DatabaseSettings, id: &str) -> anyhow::Result<()> {
    let parsed = TokenId::parse(id).with_context(|| {
        // It may be a whole token.
        let found = format!("{} characters", id.chars().count());
        format!("found {found}, expected the id of a token: the 16 digits between its two underscores")
    })?;
    let revoked = open(database).await?.revoke_token(&parsed).await.context("cannot revoke the token")?;
    let at = revoked.ok_or_else(|| anyhow!("there is no token with the id {parsed}"))?;
    writeln!(std::io::stdout(), "{parsed} is revoked since {}", time(at))?;
    Ok(())
}

/// The database beside its servers; one that is not there yet is made.
async fn open(database: &DatabaseSettings) -> anyhow::Result<Box<dyn TokenStore>> {
    if let Some(url) = &database.url()? {
        let options = PostgresOptions { max_connections: 2, ..PostgresOptions::default() };
        let store = PostgresStore::connect(url, options).await.context("cannot open the Postgres database")?;
        store.migrate_if_new().await?;
        return Ok(Box::new(store));
    }
    std::fs::create_dir_all(&database.data_dir)
        .with_context(|| format!("cannot make the data folder {}", database.data_dir.display()))?;
    let path = database.sqlite_path();
    let store = SqliteStore::open_beside(&path, SqliteOptions::default()).await;
    Ok(Box::new(store.with_context(|| format!("cannot open the database {}", path.display()))?))
}

/// A token in a line, without its secret.
fn described(record: &TokenRecord) -> String {
    let named = if record.name.is_empty() { String::new() } else { format!(" ({})", record.name) };
    let pipelines = record.pipelines.as_ref().map_or_else(
        || "all pipelines".to_owned(),
        |listed| listed.iter().map(String::as_str).collect::<Vec<_>>().join(" "),
    );
    let until = record.expires_at.map_or_else(|| "until it is revoked".to_owned(), |at| format!("until {}", time(at)));
    let TokenRecord { id, principal, scope, .. } = record;
    format!("{id}{named}: {}, {scope}, {pipelines}, {until}", principal.0)
}

fn as_object(record: &TokenRecord, now: DateTime<Utc>) -> Value {
    json!({
        "id": record.id.as_str(),
        "name": record.name,
        "principal": record.principal,
        "scope": record.scope,
        "pipelines": record.pipelines,
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "revoked_at": record.revoked_at,
        "state": record.end(now).map_or("valid", end_word),
    })
}

fn end_word(end: TokenEnd) -> &'static str {
    match end {
        TokenEnd::Revoked(_) => "revoked",
        TokenEnd::Expired(_) => "expired",
    }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}
