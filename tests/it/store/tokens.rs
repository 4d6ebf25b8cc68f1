//! Tokens: kept, listed, revoked and forgotten.

use super::bed::Bed;
use super::make::{key, request, submit};
use chrono::TimeDelta;
use refrain::access::{Token, TokenEnd, TokenId, TokenScope};
use refrain::run::Principal;
use refrain::store::{NewToken, RunFilter, TokenStore};

const A: &str = "p=1";

pub(super) fn token(filled_with: u8) -> NewToken {
    let token = Token::of(&[filled_with; Token::RANDOM_BYTES]);
    NewToken {
        id: token.id().clone(),
        name: format!("the {filled_with}th"),
        principal: Principal("airflow".to_owned()),
        digest: token.digest(),
        scope: TokenScope::Run,
        pipelines: None,
        lifetime: None,
    }
}

async fn ids(store: &dyn TokenStore) -> Vec<TokenId> {
    store.tokens().await.unwrap().records.into_iter().map(|record| record.id).collect()
}

pub(super) async fn a_token_is_kept_as_it_was_made(bed: &Bed) {
    assert!(ids(&*bed.store).await.is_empty());
    let listed = ["one".to_owned(), "two".to_owned()].into();
    let lifetime = TimeDelta::days(3);
    let new = NewToken { pipelines: Some(listed), lifetime: Some(lifetime), scope: TokenScope::Read, ..token(1) };
    let made = bed.store.put_token(&new).await.unwrap();
    let kept = bed.other.tokens().await.unwrap().records.pop().unwrap();
    assert_eq!(format!("{made:?}"), format!("{kept:?}"));
    assert!(kept.digest.is(&new.digest));
    assert_eq!(
        (&kept.name, &kept.principal, kept.scope, &kept.pipelines),
        (&new.name, &new.principal, new.scope, &new.pipelines)
    );
    assert_eq!(kept.expires_at, Some(kept.created_at + lifetime));
    assert!(bed.store.put_token(&new).await.is_err(), "an id is one token's");
}

pub(super) async fn a_revoked_token_stays_and_stays_revoked(bed: &Bed) {
    bed.store.put_token(&token(1)).await.unwrap();
    bed.store.put_token(&token(2)).await.unwrap();
    let revoked = bed.store.revoke_token(&token(1).id).await.unwrap().unwrap();
    let tokens = bed.other.tokens().await.unwrap();
    let ends: Vec<_> = tokens.records.iter().map(|record| record.end(tokens.now)).collect();
    assert_eq!(ends, [Some(TokenEnd::Revoked(revoked)), None]);
    assert_eq!(bed.other.revoke_token(&token(1).id).await.unwrap(), Some(revoked), "the first time counts");
    assert_eq!(bed.store.revoke_token(&token(3).id).await.unwrap(), None);
}

pub(super) async fn what_ended_long_ago_is_forgotten_when_another_is_made(bed: &Bed) {
    for n in 1..=4 {
        bed.store.put_token(&token(n)).await.unwrap();
    }
    for (n, column, days) in
        [(1, "revoked_at", 91), (2, "expires_at", 91), (3, "revoked_at", 89), (4, "expires_at", -1)]
    {
        let (id, day) = (token(n).id, bed.day());
        let statement = format!("update tokens set {column} = created_at - {days} * {day} where id = '{id}'");
        bed.past_the_store(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }
    // Nothing goes by itself: while there is any row, the service is closed.
    assert_eq!(ids(&*bed.store).await.len(), 4);
    bed.store.put_token(&token(5)).await.unwrap();
    assert_eq!(ids(&*bed.store).await, [3, 4, 5].map(|n| token(n).id));
}

pub(super) async fn the_schema_refuses_an_admin_of_some_pipelines(bed: &Bed) {
    let some = NewToken { scope: TokenScope::Admin, pipelines: Some(["one".to_owned()].into()), ..token(1) };
    assert!(bed.store.put_token(&some).await.is_err());
    let every = NewToken { scope: TokenScope::Admin, ..token(1) };
    bed.store.put_token(&every).await.unwrap();
}

pub(super) async fn runs_are_listed_by_principal_and_of_some_pipelines(bed: &Bed) {
    let mut made = Vec::new();
    for (n, (pipeline, principal)) in
        [("one", "us"), ("two", "us"), ("three", "them"), ("one", "them"), ("two", "us")].into_iter().enumerate()
    {
        let mut run = request(pipeline, &format!("key-{n}"), &[A]);
        run.principal = Principal(principal.to_owned());
        made.push(submit(&*bed.store, &run).await.id);
    }
    let list = async |filter: RunFilter| {
        let listed = bed.store.list(&RunFilter { limit: 3, ..filter }).await.unwrap();
        listed.iter().map(|run| made.iter().position(|id| *id == run.id).unwrap()).collect::<Vec<_>>()
    };
    let of = |pipelines: &[&str]| RunFilter {
        pipelines: Some(pipelines.iter().map(|name| (*name).to_owned()).collect()),
        ..RunFilter::default()
    };
    let by = |principal: &str| Some(Principal(principal.to_owned()));
    assert_eq!(list(RunFilter { principal: by("us"), ..RunFilter::default() }).await, [4, 1, 0]);
    assert_eq!(list(RunFilter { principal: by("nobody"), ..RunFilter::default() }).await, [0; 0]);
    assert_eq!(list(of(&["one", "three"])).await, [3, 2, 0]);
    assert_eq!(list(of(&["one", "two"])).await, [4, 3, 1], "as many as a page has");
    assert_eq!(list(RunFilter { before: Some(made[3]), ..of(&["one", "two"]) }).await, [1, 0]);
    assert_eq!(list(RunFilter { principal: by("them"), ..of(&["one", "two"]) }).await, [3]);
    assert_eq!(list(RunFilter { pipeline: Some("three".to_owned()), ..of(&["one"]) }).await, [0; 0]);
    assert_eq!(list(RunFilter { pipeline: Some("one".to_owned()), ..of(&["one"]) }).await, [3, 0]);
    assert_eq!(list(RunFilter { partition: Some(key(A)), ..of(&["three"]) }).await, [2]);
    assert_eq!(list(of(&[])).await, [0; 0]);
}
