//! Queued runs stand behind the last run in their way, so that a claim need not look at them, and never behind one that has ended.

use super::bed::Bed;
use super::make::{
    LEASE, claim, claim_request, decided, decision, definition, ended, failed, finish, nothing_to_claim, request, run,
    submit, submitted, try_claim,
};
use refrain::run::{AttemptOutcome, FailureClass, Mode, OnOverlap, Outcome, Principal, RunId, State};
use refrain::store::{Begun, Claimed, NewRun, RunStore, Submitted};
use sqlx::AssertSqlSafe;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const KEYS: [&str; 5] = ["month=2024-01", "month=2024-02", "month=2024-03", "month=2024-04", "month=2024-05"];
const STEPS: u32 = 400;

/// Two runs, `o` and `r`, overlap: by what they name, not by what is reserved.
const OVERLAP: &str = "o.pipeline = r.pipeline and o.id <> r.id and o.state in ('queued', 'running', 'committing')
    and (o.mode = 'full' or r.mode = 'full' or exists (
        select 1 from run_partitions theirs join run_partitions mine on mine.partition = theirs.partition
        where theirs.run_id = o.id and mine.run_id = r.id
    ))";

/// Always the same numbers, one after the other.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % n
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        let n = u32::try_from(of.len()).unwrap();
        (n > 0).then(|| of[self.below(n) as usize])
    }
}

/// A queue to which everything happens that can.
struct World<'a> {
    bed: &'a Bed,
    dice: Dice,
    runs: Vec<RunId>,
    held: Vec<Claimed>,
    asked: u32,
    claimed: u32,
}

impl World<'_> {
    fn store(&mut self) -> &dyn RunStore {
        if self.dice.below(2) == 0 { &*self.bed.store } else { &*self.bed.other }
    }

    fn asked(&mut self) -> NewRun {
        self.asked += 1;
        let dice = &mut self.dice;
        let from = dice.below(5) as usize;
        let to = (from + 1 + dice.below(3) as usize).min(KEYS.len());
        let keys = if dice.below(8) == 0 { &[][..] } else { &KEYS[from..to] };
        let mut asked = request("trips", &format!("run-{}", self.asked), keys);
        asked.principal = Principal(["a", "b"][dice.below(2) as usize].to_owned());
        asked.asked.priority = i32::try_from(dice.below(3)).unwrap() - 1;
        asked.definition = definition("trips", 1 + dice.below(6) / 5);
        match dice.below(5) {
            0 => asked.asked.not_before = Some(self.bed.now() + HOUR),
            1 => asked.asked.on_overlap = OnOverlap::Refuse,
            _ => {}
        }
        asked
    }

    async fn submit(&mut self) {
        let asked = self.asked();
        match self.store().submit(&asked).await.unwrap() {
            Submitted::New(run) => self.runs.push(run.id),
            Submitted::Overlaps(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// A few at once, some under keys that are known or come twice.
    async fn submit_together(&mut self) {
        let mut asked: Vec<NewRun> = (0..=self.dice.below(5)).map(|_| self.asked()).filter(NewRun::is_plain).collect();
        let others: Vec<_> = asked.iter().map(|run| (run.principal.clone(), run.idempotency_key.clone())).collect();
        for run in &mut asked {
            match self.dice.below(6) {
                0 => run.idempotency_key = refrain::run::IdempotencyKey::parse("run-1").unwrap(),
                1 => (run.principal, run.idempotency_key) = others[self.dice.below(2) as usize % others.len()].clone(),
                _ => {}
            }
        }
        let answers = self.store().submit_together(&asked.iter().collect::<Vec<_>>()).await.unwrap();
        self.runs.extend(answers.iter().filter_map(|answer| match answer {
            Submitted::New(run) => Some(run.id),
            _ => None,
        }));
    }

    /// The run whose turn it is, by the words of the promise alone.
    async fn next(&self) -> Option<RunId> {
        let now = self.bed.time();
        let next = format!(
            "select r.id from runs r join turns t on t.principal = r.principal
             where r.state = 'queued' and r.sequence > 0 and r.due_at <= {now}
                and not exists (select 1 from runs o where {OVERLAP}
                    and (o.state <> 'queued' or (o.sequence > 0 and o.sequence < r.sequence)))
                and not exists (select 1 from runs o
                    where o.pipeline = r.pipeline and o.definition <> r.definition and (o.state in ('running', 'committing')
                        or (o.state = 'queued' and o.sequence > 0 and o.sequence < r.sequence and o.due_at <= {now})))
             order by t.taken, t.principal, r.priority desc, r.sequence limit 1"
        );
        self.which(&next).await
    }

    async fn which(&self, query: &str) -> Option<RunId> {
        self.bed.text(query).await.map(|id| RunId(id.parse().unwrap()))
    }

    async fn claim(&mut self) {
        let next = self.next().await;
        let found = self.store().claim(&claim_request()).await.unwrap();
        assert_eq!(found.as_ref().map(|claimed| claimed.run.id), next);
        self.claimed += u32::from(found.is_some());
        self.held.extend(found);
    }

    /// An attempt ends in any way, or goes on to the next stage.
    async fn end(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.dice.below(u32::try_from(self.held.len()).unwrap()) as usize;
        let (claimed, how) = (self.held.swap_remove(at), self.dice.below(6));
        let (id, token, store) = (claimed.run.id, claimed.token, self.store());
        if run_of(store, id).await == State::Committing {
            match how {
                0 => drop(store.staging_lost(id, token, &[]).await.unwrap()),
                _ => drop(store.finish(id, token).await.unwrap()),
            }
            return;
        }
        let source = Some(FailureClass::Source);
        let how = match how {
            0 => ended(AttemptOutcome::Failed, source, Some(Duration::ZERO)),
            1 => ended(AttemptOutcome::Failed, source, Some(HOUR)),
            2 => ended(AttemptOutcome::Released, None, None),
            3 => failed(),
            _ => return self.decide(claimed).await,
        };
        let _ = store.end_attempt(id, token, &how).await.unwrap();
    }

    async fn decide(&mut self, claimed: Claimed) {
        let keys: Vec<&str> = match claimed.run.mode {
            Mode::Full => KEYS.to_vec(),
            Mode::Overwrite => claimed.run.partitions.iter().map(|p| p.partition.as_str()).collect(),
        };
        let decision = decision(keys.iter().map(|key| decided(key, Outcome::Replaced, 5)).collect());
        if self.store().begin_commit(claimed.run.id, claimed.token, &decision).await.unwrap() == Begun::Committing {
            self.held.push(claimed);
        }
    }

    /// All workers are lost, and taken over.
    async fn pass(&mut self) {
        self.bed.pass(HOUR).await;
        self.held.clear();
        while let Some(claimed) = self.store().claim(&claim_request()).await.unwrap() {
            let resumed = claimed.decided.is_some();
            self.held.push(claimed);
            if !resumed {
                break;
            }
        }
    }

    async fn cancel_or_retry(&mut self) {
        let Some(id) = self.dice.one(&self.runs) else { return };
        let version = 1 + self.dice.below(2);
        if self.dice.below(3) == 0 {
            let _ = self.store().cancel(id).await.unwrap();
        } else {
            let _ = self.store().retry(id, None, &definition("trips", version)).await.unwrap();
        }
    }

    /// The run whose turn it is cannot be read: it is given up, and another one claimed.
    async fn spoil(&mut self) {
        let Some(id) = self.next().await else { return };
        let spoil = format!("update runs set progress = '{{}}' where id = '{id}'");
        self.bed.past_the_store(AssertSqlSafe(spoil)).await.unwrap();
        let claimed = self.store().claim(&claim_request()).await.unwrap();
        assert_eq!(run(self.bed, id).await.state, State::Failed);
        self.held.extend(claimed);
    }

    /// Somebody deletes a run that waits, by hand.
    async fn delete(&mut self) {
        let never_tried = "select id from runs where state = 'queued' and attempts = 0 order by id limit 1";
        let Some(id) = self.which(never_tried).await else { return };
        for table in ["reservations", "run_partitions", "run_labels"] {
            self.bed.past_the_store(AssertSqlSafe(format!("delete from {table} where run_id = '{id}'"))).await.unwrap();
        }
        self.bed.past_the_store(AssertSqlSafe(format!("delete from runs where id = '{id}'"))).await.unwrap();
        self.runs.retain(|run| *run != id);
    }
}

async fn run_of(store: &dyn RunStore, id: RunId) -> State {
    store.get(id).await.unwrap().unwrap().state
}

/// How many runs stand elsewhere than behind the last one in their way, or may not stand at all, or keep what they reserved.
async fn misplaced(bed: &Bed) -> [i64; 3] {
    let elsewhere = format!(
        "select count(*) from runs r where r.state = 'queued' and r.sequence > 0 and r.behind is distinct from (
            select max(o.sequence) from runs o where o.sequence > 0 and o.sequence < r.sequence and {OVERLAP})"
    );
    let stand = "select count(*) from runs where behind is not null and (state <> 'queued' or sequence < 0)";
    let keep = "select count(*) from reservations v join runs r on r.id = v.run_id where r.ended_at is not null";
    [bed.number(&elsewhere).await, bed.number(stand).await, bed.number(keep).await]
}

/// How many runs would never begin.
const STRANDED: &str = "select count(*) from runs r where r.behind is not null and r.state = 'queued' and not exists (
    select 1 from runs o where o.sequence = r.behind and o.state in ('queued', 'running', 'committing'))";

pub(crate) async fn every_run_stands_behind_the_last_one_in_its_way(bed: &Bed) {
    let mut world = World { bed, dice: Dice(6), runs: Vec::new(), held: Vec::new(), asked: 0, claimed: 0 };
    for step in 0..STEPS {
        let action = world.dice.below(26);
        match action {
            0..5 => world.submit().await,
            5..8 => world.submit_together().await,
            8..14 => world.claim().await,
            14..21 => world.end().await,
            21..23 => world.cancel_or_retry().await,
            23 => world.pass().await,
            24 => world.spoil().await,
            _ => world.delete().await,
        }
        assert_eq!(misplaced(bed).await, [0; 3], "step {step}, action {action}");
    }
    assert!(world.claimed > 30, "{} were claimed: too few", world.claimed);
    assert_eq!(work_off(bed).await, 0);
}

/// Claims and ends until there is nothing more; how many are left in the queue.
async fn work_off(bed: &Bed) -> u64 {
    loop {
        bed.pass(HOUR).await;
        let Some(claimed) = try_claim(bed).await else { return bed.store.queue_depth().await.unwrap().queued };
        if claimed.decided.is_some() {
            finish(bed, &claimed).await;
        } else {
            let _ = bed.store.end_attempt(claimed.run.id, claimed.token, &failed()).await.unwrap();
        }
    }
}

/// Submissions, claims, ends, cancellations and retries at once, of a few partitions and of all.
pub(crate) async fn nobody_is_stranded_however_many_come_and_go(bed: &Bed) {
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let store = Arc::clone(if task % 2 == 0 { &bed.store } else { &bed.other });
            tokio::spawn(async move { come_and_go(&*store, task).await })
        })
        .collect();
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        assert_eq!(bed.number(STRANDED).await, 0);
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bed.number(STRANDED).await, 0);
    assert_eq!(work_off(bed).await, 0);
}

async fn come_and_go(store: &dyn RunStore, task: u64) {
    let (mut dice, mut mine) = (Dice(task), Vec::new());
    for n in 0..60 {
        match dice.below(8) {
            0..4 => {
                let from = dice.below(3) as usize;
                let keys = if dice.below(12) == 0 { &[][..] } else { &KEYS[from..from + 1 + dice.below(2) as usize] };
                let asked = [
                    request("trips", &format!("{task}/{n}"), keys),
                    request("trips", &format!("{task}/{n}/too"), &KEYS[..1]),
                    request("trips", &format!("shared/{n}"), &KEYS[2..3]),
                ];
                let asked: Vec<_> = asked.iter().take(1 + dice.below(3) as usize).collect();
                let answers = store.submit_together(&asked).await.unwrap();
                assert!(matches!(answers[0], Submitted::New(_)), "{answers:?}");
                mine.push(asked[0].id);
            }
            4..6 => {
                let Some(claimed) = store.claim(&claim_request()).await.unwrap() else { continue };
                let _ = store.renew(claimed.run.id, claimed.token, LEASE, &super::make::progress()).await.unwrap();
                let _ = store.end_attempt(claimed.run.id, claimed.token, &failed()).await.unwrap();
            }
            6 => drop(store.cancel(dice.one(&mine).unwrap_or_default()).await.unwrap()),
            _ => {
                let again = dice.one(&mine).unwrap_or_default();
                drop(store.retry(again, None, &definition("trips", 1)).await.unwrap());
            }
        }
    }
}

/// Behind whom a run stands, by their keys.
async fn ahead_of(bed: &Bed, key: &str) -> Option<String> {
    let ahead = "select o.idempotency_key from runs r join runs o on o.sequence = r.behind where r.idempotency_key";
    bed.text(&format!("{ahead} = '{key}'")).await
}

pub(crate) async fn runs_that_come_together_stand_behind_each_other(bed: &Bed) {
    let known = submitted(bed, "known", &KEYS[..1]).await;
    claim(bed, known).await;
    let asked = [
        request("trips", "a", &KEYS[..1]),
        request("trips", "b", &KEYS[..2]),
        request("trips", "c", &[]),
        request("trips", "d", &KEYS[1..2]),
        request("trips", "e", &KEYS[1..3]),
        request("zones", "f", &KEYS[..1]),
        request("trips", "known", &KEYS[3..4]),
        request("trips", "twice", &KEYS[2..3]),
        request("trips", "twice", &KEYS[4..5]),
        request("trips", "z", &KEYS[4..5]),
    ];
    let answers = bed.store.submit_together(&asked.iter().collect::<Vec<_>>()).await.unwrap();
    let is_new: Vec<bool> = answers.iter().map(|answer| matches!(answer, Submitted::New(_))).collect();
    assert_eq!(is_new, [true, true, true, true, true, true, false, true, false, true], "{answers:?}");
    let ahead = [("a", "known"), ("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", ""), ("twice", "e"), ("z", "c")];
    for (key, expected) in ahead {
        assert_eq!(ahead_of(bed, key).await.unwrap_or_default(), expected, "of {key}");
    }
    assert_eq!(misplaced(bed).await, [0; 3]);
}

pub(crate) async fn a_run_whose_time_comes_stands_behind_who_was_there(bed: &Bed) {
    let first = submitted(bed, "first", &KEYS[..1]).await;
    claim(bed, first).await;
    let mut later = request("trips", "later", &KEYS[..1]);
    later.asked.not_before = Some(bed.now() + HOUR);
    submit(&*bed.store, &later).await;
    bed.pass(2 * HOUR).await;
    submitted(bed, "last", &KEYS[..1]).await;
    assert_eq!(ahead_of(bed, "later").await.as_deref(), Some("first"));
    assert_eq!(ahead_of(bed, "last").await.as_deref(), Some("later"));
}

pub(crate) async fn who_stands_behind_a_run_that_has_ended_is_freed(bed: &Bed) {
    let first = submitted(bed, "first", &KEYS[..1]).await;
    let stranded = submitted(bed, "stranded", &KEYS[1..2]).await;
    submitted(bed, "second", &KEYS[..1]).await;
    let ended = submitted(bed, "ended", &KEYS[2..3]).await;
    assert!(matches!(bed.store.cancel(ended).await.unwrap(), refrain::store::Cancelled::Now));
    let strand = "update runs set behind = (select sequence from runs where idempotency_key = 'ended') \
                  where idempotency_key = 'stranded'";
    bed.past_the_store(strand).await.unwrap();
    claim(bed, first).await;
    nothing_to_claim(bed).await;
    let mut changes = bed.store.changes();
    assert_eq!(bed.store.free_stranded().await.unwrap(), 1, "and nobody else");
    assert_eq!(changes.recv().await.unwrap(), refrain::store::Change::Queue);
    claim(bed, stranded).await;
    nothing_to_claim(bed).await;
    assert_eq!(bed.store.free_stranded().await.unwrap(), 0);
}

/// A version that does not know of it writes runs and ends them by statements of its own.
pub(crate) async fn what_an_older_version_does_lets_others_go_too(bed: &Bed) {
    let first = submitted(bed, "first", &KEYS[..1]).await;
    claim(bed, first).await;
    bed.copy_run(1, 3).await;
    assert_eq!(misplaced(bed).await, [0; 3]);
    assert_eq!(bed.number("select count(*) from runs where behind is not null").await, 3);
    let whole = submitted(bed, "whole", &[]).await;
    for (key, left) in [("first", 3), ("queued-2", 2), ("queued-1", 1), ("queued-3", 0)] {
        let end = format!(
            "update runs set state = 'cancelled', claim_token = null, lease_until = null, ended_at = created_at
             where idempotency_key = '{key}'"
        );
        bed.past_the_store(AssertSqlSafe(end)).await.unwrap();
        assert_eq!(misplaced(bed).await, [0; 3], "without {key}");
        assert_eq!(bed.number("select count(*) from runs where behind is not null").await, left, "without {key}");
    }
    claim(bed, whole).await;
}
