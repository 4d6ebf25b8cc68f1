//! Disjoint runs overlap in time, and a waiting run does not hold them up.

use super::{MadeUp, PATIENCE, Workers, on_both_stores, request, store_of, submit, succeeded};
use crate::store::bed::Bed;
use futures::FutureExt;
use refrain::run::{RunId, State};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{Barrier, Semaphore};

on_both_stores! {
    disjoint_runs_overlap_also_where_one_empties_the_folder_that_the_other_fills,
    a_waiting_run_does_not_hold_up_younger_disjoint_ones,
}

const ROUNDS: usize = 25;

/// Whom a run meets while it computes, and what it makes of its partition.
type Meetings = Arc<Mutex<HashMap<RunId, (Arc<Barrier>, bool)>>>;

async fn disjoint_runs_overlap_also_where_one_empties_the_folder_that_the_other_fills(bed: &Bed) {
    let meetings = Meetings::default();
    let (computing, making) = (meetings.clone(), meetings.clone());
    let engine = MadeUp {
        computes: Box::new(move |run| {
            let barrier = computing.lock().unwrap()[&run].0.clone();
            async move {
                barrier.wait().await;
            }
            .boxed()
        }),
        makes: Box::new(move |run, key| {
            making.lock().unwrap()[&run].1.then(|| (format!("{run} {key}").into_bytes(), 1))
        }),
    };
    let workers = Workers::start(bed, 4, engine).await;
    // In turn, one hour of the day is emptied and the other one filled. The folder of the day is left in between at times.
    let hours = ["date=2024-02-29/hour=01", "date=2024-02-29/hour=02"];
    for round in 0..ROUNDS {
        let (barrier, pair) = (Arc::new(Barrier::new(2)), hours.map(|key| request("trips", &[key])));
        let filled = round % 2;
        for (at, run) in pair.iter().enumerate() {
            meetings.lock().unwrap().insert(run.id, (barrier.clone(), at == filled));
        }
        for (at, run) in pair.iter().enumerate() {
            submit(&*store_of(bed, at), run).await;
        }
        // Neither goes on before both compute.
        let both = futures::future::join(succeeded(bed, pair[0].id), succeeded(bed, pair[1].id)).await;
        assert!(both.0.started_at < both.1.ended_at && both.1.started_at < both.0.ended_at);
        let live = hours.map(|key| workers.live("trips", key));
        let made = format!("{} {}", pair[filled].id, hours[filled]).into_bytes();
        assert_eq!((&live[filled], &live[1 - filled]), (&Some(made), &None), "round {round}");
    }
    workers.stop().await;
}

async fn a_waiting_run_does_not_hold_up_younger_disjoint_ones(bed: &Bed) {
    let gate = Arc::new(Semaphore::new(0));
    let held = request("trips", &["date=2024-02-29/hour=01"]);
    let (at_the_gate, first) = (gate.clone(), held.id);
    let engine = MadeUp {
        computes: Box::new(move |run| {
            let gate = at_the_gate.clone();
            async move {
                if run == first {
                    drop(gate.acquire().await.unwrap());
                }
            }
            .boxed()
        }),
        makes: Box::new(|run, _| Some((run.to_string().into_bytes(), 1))),
    };
    let workers = Workers::start(bed, 2, engine).await;
    submit(&*bed.store, &held).await;
    let waiting = request("trips", &["date=2024-02-29/hour=01", "date=2024-02-29/hour=02"]);
    submit(&*bed.other, &waiting).await;
    // It overlaps the waiting one alone, and must not overtake it.
    let behind = request("trips", &["date=2024-02-29/hour=02"]);
    submit(&*bed.store, &behind).await;
    for hour in 3..8 {
        let disjoint = request("trips", &[format!("date=2024-02-29/hour={hour:02}").as_str()]);
        submit(&*store_of(bed, hour), &disjoint).await;
        succeeded(bed, disjoint.id).await;
    }
    let state = async |id| bed.store.get(id).await.unwrap().unwrap().state;
    assert_eq!(state(held.id).await, State::Running);
    assert_eq!((state(waiting.id).await, state(behind.id).await), (State::Queued, State::Queued));
    gate.add_permits(1);
    let ended =
        async { [succeeded(bed, held.id).await, succeeded(bed, waiting.id).await, succeeded(bed, behind.id).await] };
    let [held, waiting, behind] = tokio::time::timeout(PATIENCE, ended).await.unwrap();
    assert!(held.ended_at <= waiting.started_at && waiting.ended_at <= behind.started_at);
    workers.stop().await;
}
