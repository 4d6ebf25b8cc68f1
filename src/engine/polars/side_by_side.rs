//! Work on several things at the same time, told in their order.

use crate::engine::EngineError;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

/// Does `work` on each of the items, on up to `threads` threads, and hands what came of it to `next` in the order of the items.
/// Ends with the first error in that order, when what was begun by then is done.
pub(super) fn in_order<T: Send, R: Send>(
    items: Vec<T>,
    threads: usize,
    work: impl Fn(T) -> Result<R, EngineError> + Sync,
    mut next: impl FnMut(R) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    if threads <= 1 || items.len() <= 1 {
        return items.into_iter().try_for_each(|item| next(work(item)?));
    }
    let threads = threads.min(items.len());
    let queue = Mutex::new(items.into_iter().enumerate());
    let (done, told) = mpsc::sync_channel(threads);
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let working: Vec<_> = (0..threads)
            .map(|_| {
                let (queue, work, done, failed) = (&queue, &work, done.clone(), &failed);
                scope.spawn(move || {
                    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    // What comes before an error in the order was begun before it.
                    while let Some((at, item)) = take().filter(|_| !failed.load(Ordering::Relaxed)) {
                        let result = work(item);
                        failed.fetch_or(result.is_err(), Ordering::Relaxed);
                        if done.send((at, result)).is_err() {
                            break;
                        }
                    }
                })
            })
            .collect();
        drop(done);
        let (mut early, mut turn) = (BTreeMap::new(), 0);
        // Where this ends early, nobody takes what is done, and so nothing more is begun.
        for (at, result) in told {
            early.insert(at, result);
            while let Some(result) = early.remove(&turn) {
                turn += 1;
                next(result?)?;
            }
        }
        for thread in working {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::error::compute_failure;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn what_is_done_side_by_side_is_told_in_order() {
        for threads in [0, 1, 2, 7, 100] {
            let mut told = Vec::new();
            let all = in_order((0..50).collect(), threads, Ok, |n: i32| {
                told.push(n);
                Ok(())
            });
            assert_eq!((all, told), (Ok(()), (0..50).collect()), "{threads} threads");
        }
        // It ends only because both are at work at once.
        let both = Barrier::new(2);
        let waited = |n: i32| {
            both.wait();
            Ok(n)
        };
        assert_eq!(in_order(vec![1, 2], 2, waited, |_| Ok(())), Ok(()));
    }

    #[test]
    fn the_first_error_ends_it() {
        let begun = AtomicUsize::new(0);
        let work = |n: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            if n >= 5 { Err(compute_failure("bad", "Bad", n.to_string())) } else { Ok(n) }
        };
        let mut told = Vec::new();
        let ended = in_order((0..1000).collect(), 3, work, |n| {
            told.push(n);
            Ok(())
        });
        assert_eq!(ended.map_err(|error| error.to_string()), Err("5".to_owned()));
        assert_eq!(told, [0, 1, 2, 3, 4]);
        // One more by each thread at most.
        assert!(begun.load(Ordering::Relaxed) <= 8, "{begun:?}");
    }
}
