//! Random queues of times, priorities and overlaps, against a model of the order.

use super::bed::Bed;
use super::make::{claim_request, failed, request, run, submit};
use refrain::run::{ClaimToken, RunId};
use refrain::store::Fenced;
use std::time::Duration;

const STEPS: u32 = 500;
const KEYS: [&str; 5] = ["month=2024-01", "month=2024-02", "month=2024-03", "month=2024-04", "month=2024-05"];
const HOUR: Duration = Duration::from_secs(3600);

/// Always the same numbers, one after the other.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % n
    }
}

/// A run that has not ended; the whole table where it names no keys.
struct Asked {
    id: RunId,
    keys: Vec<&'static str>,
    due: u32,
    priority: i32,
    number: Option<u32>,
    held: Option<ClaimToken>,
}

/// The order as the promise has it, in hours.
#[derive(Default)]
struct Model {
    now: u32,
    numbers: u32,
    runs: Vec<Asked>,
    /// Every run in the order of the numbers.
    order: Vec<RunId>,
}

impl Model {
    /// Whoever submits or claims gives those their numbers whose time has come.
    fn look(&mut self) {
        let mut due: Vec<usize> = (0..self.runs.len()).collect();
        due.retain(|at| self.runs[*at].number.is_none() && self.runs[*at].due <= self.now);
        // Stable: of the same time, the one that was accepted first.
        due.sort_by_key(|at| self.runs[*at].due);
        for at in due {
            self.numbers += 1;
            self.runs[at].number = Some(self.numbers);
            self.order.push(self.runs[at].id);
        }
    }

    fn next(&self) -> Option<RunId> {
        let free = |run: &&Asked| {
            run.held.is_none()
                && run.number.is_some()
                && !self.runs.iter().any(|other| {
                    let first = other.held.is_some() || (other.number.is_some() && other.number < run.number);
                    other.id != run.id && first && overlap(run, other)
                })
        };
        let next = self.runs.iter().filter(free).min_by_key(|run| (-run.priority, run.number));
        next.map(|run| run.id)
    }
}

fn overlap(a: &Asked, b: &Asked) -> bool {
    a.keys.is_empty() || b.keys.is_empty() || a.keys.iter().any(|key| b.keys.contains(key))
}

pub(crate) async fn queues_are_claimed_as_the_model_says(bed: &Bed) {
    let (mut dice, mut model) = (Dice(8), Model::default());
    let (mut submitted, mut claimed, mut waited) = (0, 0, 0);
    for step in 0..STEPS {
        match dice.below(10) {
            0..4 => {
                model.look();
                let from = dice.below(5) as usize;
                let keys =
                    if dice.below(12) == 0 { &[][..] } else { &KEYS[from..(from + 1 + dice.below(2) as usize).min(5)] };
                let hours = [0, 0, 1, 2, 3][dice.below(5) as usize];
                let mut asked = request("trips", &format!("step-{step}"), keys);
                asked.asked.priority = i32::try_from(dice.below(3)).unwrap() - 1;
                asked.asked.not_before = (hours > 0).then(|| bed.now() + hours * HOUR);
                let accepted = submit(if dice.below(2) == 0 { &*bed.store } else { &*bed.other }, &asked).await;
                assert_eq!(accepted.sequence > 0, hours == 0, "step {step}");
                let (priority, due) = (asked.asked.priority, model.now + hours);
                model.runs.push(Asked {
                    id: accepted.id,
                    keys: keys.to_vec(),
                    due,
                    priority,
                    number: None,
                    held: None,
                });
                model.look();
                submitted += 1;
                waited += u32::from(hours > 0);
            }
            4..7 => {
                model.look();
                let found = bed.store.claim(&claim_request()).await.unwrap();
                assert_eq!(found.as_ref().map(|claimed| claimed.run.id), model.next(), "step {step}");
                if let Some(found) = found {
                    model.runs.iter_mut().find(|run| run.id == found.run.id).unwrap().held = Some(found.token);
                    claimed += 1;
                }
            }
            7..9 => {
                let held: Vec<usize> = (0..model.runs.len()).filter(|at| model.runs[*at].held.is_some()).collect();
                if held.is_empty() {
                    continue;
                }
                let ended = model.runs.remove(held[dice.below(u32::try_from(held.len()).unwrap()) as usize]);
                let answer = bed.store.end_attempt(ended.id, ended.held.unwrap(), &failed()).await.unwrap();
                assert_eq!(answer, Fenced::Done);
            }
            _ => {
                // Those that are held stay so.
                for held in model.runs.iter().filter_map(|run| Some((run.id, run.held?))) {
                    let renewed = bed.store.renew(held.0, held.1, 2 * HOUR, &super::make::progress()).await.unwrap();
                    assert_eq!(renewed, refrain::store::Renewal::Held);
                }
                bed.pass(HOUR).await;
                model.now += 1;
            }
        }
    }
    let mut numbers = Vec::new();
    for id in &model.order {
        numbers.push(run(bed, *id).await.sequence);
    }
    // Whoever took a number in the model has one, once somebody has looked.
    assert!(numbers[0] > 0 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert!(
        claimed > 80 && waited > 50,
        "{submitted} submitted, {waited} of them for later, {claimed} claimed: too few"
    );
}
