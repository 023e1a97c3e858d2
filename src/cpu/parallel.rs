//! Work shared out over threads.
//!
//! Threads live for one call and only ever run the task they were started for. A pool whose workers steal other jobs
//! while they wait could run a second program on top of one that holds the buffers' locks, and wait for itself.
//!
//! Every output element is computed by exactly one task in a fixed order, so results do not depend on the number of
//! threads.

use std::num::NonZero;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

/// Scalar operations that are worth a thread of their own: starting one costs some tens of microseconds.
const WORK_PER_THREAD: usize = 1 << 18;

/// Tasks per thread, so that threads which start late or run slower get fewer of them.
const TASKS_PER_THREAD: usize = 8;

static CORES: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(1, NonZero::get));

fn threads(work: usize) -> usize {
    (work / WORK_PER_THREAD).clamp(1, *CORES)
}

/// Runs `task` on every item, each taken by whichever thread is free.
fn for_each<I>(items: I, threads: usize, task: impl Fn(I::Item) + Sync)
where
    I: Iterator + Send,
{
    if threads == 1 {
        return items.for_each(task);
    }
    let items = Mutex::new(items);
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || {
        while let Some(item) = next() {
            task(item);
        }
    };
    thread::scope(|scope| {
        // Without a further thread there is still this one.
        let started = |_: &usize| thread::Builder::new().spawn_scoped(scope, worker).is_ok();
        let _ = (1..threads).take_while(started).count();
        worker();
    });
}

/// Fills `out` row by row: `fill` gets each row's number and its `len` elements.
///
/// `work` is the number of scalar operations one row takes, roughly.
pub(super) fn rows<T: Send>(out: &mut [T], len: usize, work: usize, fill: impl Fn(usize, &mut [T]) + Sync) {
    if len == 0 {
        return;
    }
    let rows = out.len() / len;
    let threads = threads(rows.saturating_mul(work));
    let per_task = if threads == 1 { rows.max(1) } else { rows.div_ceil(threads * TASKS_PER_THREAD) };
    for_each(out.chunks_mut(per_task * len).enumerate(), threads, |(task, chunk)| {
        for (row, values) in chunk.chunks_mut(len).enumerate() {
            fill(task * per_task + row, values);
        }
    });
}

/// The results of `task` for `0..count`, in that order; `work` as in [`rows`], for one task.
pub(super) fn map<R: Send>(count: usize, work: usize, task: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    rows(&mut results, 1, work, |index, result| result[0] = Some(task(index)));
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_filled_once_whatever_the_number_of_threads() {
        for work in [1, WORK_PER_THREAD, WORK_PER_THREAD * 3] {
            for count in [0, 1, 2, 7, 100] {
                let mut out = vec![0usize; count * 3];
                rows(&mut out, 3, work, |row, values| values.iter_mut().for_each(|v| *v += row + 1));
                let expected: Vec<usize> = (0..count).flat_map(|row| [row + 1; 3]).collect();
                assert_eq!(out, expected);
                assert_eq!(map(count, work, |i| i * i), (0..count).map(|i| i * i).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn items_are_shared_out_without_loss() {
        for threads in [1, 2, 5] {
            let seen = Mutex::new(Vec::new());
            for_each(0..50, threads, |item| seen.lock().unwrap().push(item));
            let mut seen = seen.into_inner().unwrap();
            seen.sort_unstable();
            assert_eq!(seen, (0..50).collect::<Vec<_>>());
        }
    }
}
