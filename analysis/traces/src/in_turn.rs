//! Threads that take jobs in turn, so that their results come back in the jobs' order.

use std::panic::resume_unwind;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::{spawn, JoinHandle};

/// Jobs that a thread has at most, with the one it works at.
const WAITING: usize = 2;

struct Worker<J, R> {
    jobs: SyncSender<J>,
    results: Receiver<R>,
    thread: JoinHandle<()>,
}

/// A number of threads that do the same work.
pub(crate) struct InTurn<J, R> {
    /// Job number n is for the worker at n modulo their number.
    workers: Vec<Worker<J, R>>,
    /// Jobs sent, and results taken.
    sent: usize,
    taken: usize,
}

impl<J: Send + 'static, R: Send + 'static> InTurn<J, R> {
    /// Starts `threads` of them.
    pub(crate) fn new(threads: usize, work: impl Fn(J) -> R + Clone + Send + 'static) -> InTurn<J, R> {
        let start = |_| {
            let (jobs, from) = sync_channel(WAITING);
            let (to, results) = sync_channel(WAITING);
            let work = work.clone();
            let thread = spawn(move || {
                for job in from {
                    if to.send(work(job)).is_err() {
                        return;
                    }
                }
            });
            Worker { jobs, results, thread }
        };
        InTurn { workers: (0..threads).map(start).collect(), sent: 0, taken: 0 }
    }

    /// Whether a job can be sent without waiting for a result.
    pub(crate) fn has_room(&self) -> bool {
        self.sent - self.taken < WAITING * self.workers.len()
    }

    /// Gives the next thread a job.
    pub(crate) fn send(&mut self, job: J) {
        let place = self.sent % self.workers.len();
        if self.workers[place].jobs.send(job).is_err() {
            self.fail(place);
        }
        self.sent += 1;
    }

    /// Waits for the result of the oldest job. `None` if there is no job.
    pub(crate) fn take(&mut self) -> Option<R> {
        if self.taken == self.sent {
            return None;
        }
        let place = self.taken % self.workers.len();
        let result = self.workers[place].results.recv();
        self.taken += 1;
        Some(result.unwrap_or_else(|_| self.fail(place)))
    }

    /// Continues a thread's panic here.
    fn fail(&mut self, place: usize) -> ! {
        let Worker { thread, .. } = self.workers.swap_remove(place);
        resume_unwind(thread.join().expect_err("a thread ends before its jobs only by a panic"))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_jobs() {
        let mut threads = InTurn::new(3, |number: u64| {
            sleep(Duration::from_millis(5 - number % 5));
            number * 10
        });
        let mut results = Vec::new();
        for number in 0..40 {
            while !threads.has_room() {
                results.extend(threads.take());
            }
            threads.send(number);
        }
        while let Some(result) = threads.take() {
            results.push(result);
        }
        assert_eq!(results, (0..40).map(|number| number * 10).collect::<Vec<_>>());
        assert!(threads.has_room());
    }

    #[test]
    fn a_panic_of_a_thread_goes_on_in_the_one_that_waits() {
        let mut threads = InTurn::new(2, |number: u64| {
            assert!(number < 1, "no {number}");
        });
        threads.send(0);
        threads.send(1);
        assert_eq!(threads.take(), Some(()));
        let panic = catch_unwind(AssertUnwindSafe(|| threads.take())).expect_err("the second job panics");
        assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some("no 1"));
    }
}
