//! Rows that change while packets pass: the work of `weft query` and `weft load` in a node, without its admin
//! interface.
//!
//! One thread forwards packets, and applies changes between two batches. Another changes rows and waits until the
//! change is visible. A third rebuilds compiled rules, as a node's does.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_core::frame::BATCH_MAX;
use weft_core::rng::Rng;
use weft_core::types::Value;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::rules::{Change, PendingChange, Swap, TableName};
use weft_engine::state::StateStore;
use weft_io::clock;

use super::cases::{CHANGED, Case, PreparedCase, route_row, rule_row};
use super::learned;
use super::rig::Rig;
use crate::progress;
use crate::report::{Report, Row};
use weft_control::tables::REBUILD_EVERY;

/// Rows per change, and the rate: 10^5 rows a second.
const ROWS: usize = 100;
const EVERY: Duration = Duration::from_millis(1);
/// Rows of a list that are inserted together, as by `weft load`.
const LOADED: usize = 2000;
/// Rows that a handler adds.
const LEARNED: usize = 1000;
/// In a table with fewer rows, each change replaces rows. In others, half of the changes remove rows, and the other
/// half insert them again.
const FEW: usize = 1000;

/// Messages to the forwarding thread, handled between two batches.
enum Mail {
    ApplySwap(Arc<Swap>, Sender<()>),
    ApplyCode(Arc<PacketPlan>, Sender<()>),
    /// Nanoseconds of CPU time per packet since the last request.
    Figure(Sender<f64>),
}

/// The thread that changes rows: the state, and the channel to the forwarder.
struct Changer<'a> {
    store: &'a Mutex<StateStore>,
    mail: Sender<Mail>,
    table: TableName,
}

/// Measures every case.
pub(crate) fn run(quick: bool) -> Report {
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    let is_quick = |(case, _): &&(Case, &str)| !(quick && case.routes > 100_000);
    for (case, table) in CHANGED.iter().filter(is_quick) {
        progress(case.name);
        match of_case(case, table, if quick { 1 } else { 3 }) {
            Ok(figures) => rows.extend(figures),
            Err(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    progress("by a handler");
    match learned::run(if quick { LEARNED / 10 } else { LEARNED }) {
        Ok(figures) => rows.extend(figures),
        Err(why) => failures.push(format!("by a handler: {why}")),
    }
    let notes = vec![
        format!(
            "while: {ROWS} rows change together each millisecond, 10^5 a second; ns of a core a packet, as all, with \
             source and sink"
        ),
        "visible: from a change until the forwarding thread has taken it up; changed: as many as were done"
            .to_owned(),
        "after: what is built of the rows is new, the code is that of before; anew: the code as well"
            .to_owned(),
        "most: one change behind the other; a row: time of a core that it takes the changing thread"
            .to_owned(),
        "by a handler: rows of a SINK TO TABLE, one behind the other, from the packet that sends one until one sees it"
            .to_owned(),
        "first: the first change of a table; load: all rows into the table when it is empty, 2,000 together"
            .to_owned(),
    ];
    Report { bench: "rules", rows, notes, failures }
}

/// Measures changes of one table of a case while it forwards packets.
fn of_case(case: &Case, table: &str, rounds: usize) -> Result<Vec<Row>, String> {
    let ready = case.ready()?;
    let mut rows: Vec<Vec<Value>> = match table {
        "routes" => ready.routes.iter().map(route_row).collect(),
        _ => ready.rules.iter().flatten().map(rule_row).collect(),
    };
    let held = ready.store.table(&case.table(table)).ok_or("its table is not there")?;
    let rest: Vec<Value> =
        held.tables[0].columns().skip(rows[0].len()).map(|(column, _)| column.default.clone()).collect();
    rows.iter_mut().for_each(|row| row.extend(rest.iter().cloned()));
    let store = Mutex::new(ready.store.clone());
    let (mail, mailbox) = channel();
    thread::scope(|threads| {
        let ready = &ready;
        let forwarding = threads.spawn(move || forward(case, ready, &mailbox));
        let changer = Changer { store: &store, mail, table: case.table(table) };
        let figures = changer.figures(case, &rows, rounds);
        // The forwarder ends when its mailbox has no sender.
        drop(changer);
        forwarding.join().map_err(|_| "the forwarding thread has ended badly")??;
        figures
    })
}

/// Forwards packets until the mailbox has no sender.
fn forward(case: &Case, ready: &PreparedCase, mailbox: &Receiver<Mail>) -> Result<(), String> {
    let mut rig = Rig::of(case, ready)?;
    let (mut n, mut since) = (0, thread_cpu_ns()?);
    loop {
        rig.batches(1);
        n += BATCH_MAX;
        match mailbox.try_recv() {
            Ok(Mail::ApplySwap(swap, done)) => {
                rig.apply(&swap);
                // Drop it before the receiver gets the answer.
                drop(swap);
                let _ = done.send(());
            }
            Ok(Mail::ApplyCode(plan, done)) => {
                rig.apply_code(&plan);
                let _ = done.send(());
            }
            Ok(Mail::Figure(to)) => {
                let now = thread_cpu_ns()?;
                let _ = to.send((now - since) / n as f64);
                (n, since) = (0, now);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

/// CPU time of this thread, in nanoseconds: other processes use the machine as well.
fn thread_cpu_ns() -> Result<f64, String> {
    const FILE: &str = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
    let first = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    first.ok_or_else(|| format!("{FILE}: no time in `{text}`"))
}

impl Changer<'_> {
    /// Measures a table in each round: the forwarder before, during and after changes, and the time and rate of
    /// changes.
    fn figures(&self, case: &Case, rows: &[Vec<Value>], rounds: usize) -> Result<Vec<Row>, String> {
        let (mut before, mut during, mut after, mut anew) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut visible, mut rate, mut built) = (Vec::new(), Vec::new(), Vec::new());
        let (mut most, mut one) = (Vec::new(), Vec::new());
        // The first change of a table copies it.
        let first = self.change(vec![Change::Put(rows[0].clone())]).as_secs_f64() * 1e3;
        for round in 0..rounds {
            let mut rng = Rng::of_stream(1, "round", round as u64);
            before.push(self.figure_of(|| thread::sleep(Duration::from_millis(500)))?);
            thread::scope(|threads| -> Result<(), String> {
                let (stop, stopped) = channel::<()>();
                let rebuilding = threads.spawn(move || self.rebuild_until(&stopped));
                let took = self.figure_of(|| {
                    let seen = self.changes(rows, &mut rng, Some(EVERY));
                    rate.push((seen.len() * ROWS) as f64);
                    visible.extend(seen);
                })?;
                during.push(took);
                let cpu = thread_cpu_ns()?;
                let n = (self.changes(rows, &mut rng, None).len() * ROWS) as f64;
                most.push(n);
                one.push((thread_cpu_ns()? - cpu) / n / 1e3);
                drop(stop);
                built.extend(rebuilding.join().map_err(|_| "the rebuilding thread has ended badly")?);
                Ok(())
            })?;
            while self.rebuild_once().is_some() {}
            after.push(self.figure_of(|| thread::sleep(Duration::from_millis(500)))?);
            let plan = case.code(&mut lock(self.store))?;
            self.send_and_wait(|done| Mail::ApplyCode(plan, done));
            anew.push(self.figure_of(|| thread::sleep(Duration::from_millis(500)))?);
        }
        visible.sort_by(f64::total_cmp);
        let quantile = |q: f64| visible[((visible.len() - 1) as f64 * q) as usize];
        let load = self.load(rows);
        let row = |metric, unit, samples: &[f64]| Row::new(case.name, metric, unit, samples);
        Ok(vec![
            row("before", "ns", &before),
            row("while", "ns", &during).against("before", &during, &before),
            row("after", "ns", &after),
            row("anew", "ns", &anew),
            row("changed", "rows/s", &rate),
            row("visible p50", "ms", &[quantile(0.5)]),
            row("visible p99", "ms", &[quantile(0.99)]),
            row("most", "rows/s", &most),
            row("a row", "us", &one),
            row("first", "ms", &[first]),
            row("rebuild", "ms", &built),
            row("load", "ms", &[load]),
        ])
    }

    /// Measures the forwarder's nanoseconds per packet while `what` runs.
    fn figure_of(&self, what: impl FnOnce()) -> Result<f64, String> {
        let figure = || {
            let (to, from) = channel();
            self.mail.send(Mail::Figure(to)).map_err(|_| "the forwarder has ended")?;
            from.recv().map_err(|_| "the forwarder has ended".to_owned())
        };
        figure()?;
        what();
        figure()
    }

    /// Changes rows for a second, at an interval if the machine keeps up, or back to back; returns the milliseconds
    /// until each change was visible.
    fn changes(&self, rows: &[Vec<Value>], rng: &mut Rng, every: Option<Duration>) -> Vec<f64> {
        let (began, mut took) = (Instant::now(), Vec::new());
        let mut gone: Vec<usize> = Vec::new();
        let mut due = began;
        while began.elapsed() < Duration::from_secs(1) {
            if let Some(every) = every {
                due += every;
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let put = |at: usize| Change::Put(rows[at].clone());
            let mut changes: Vec<Change> = core::mem::take(&mut gone).into_iter().map(put).collect();
            while changes.len() < ROWS {
                let at = rng.below(rows.len());
                if rows.len() < FEW {
                    changes.push(put(at));
                } else {
                    gone.push(at);
                    changes.push(Change::Remove(rows[at][..1].to_vec()));
                }
            }
            took.push(self.change(changes).as_secs_f64() * 1e3);
        }
        self.change(gone.into_iter().map(|at| Change::Put(rows[at].clone())).collect());
        took
    }

    /// Empties the table and inserts all rows. Returns the milliseconds of the insertion.
    fn load(&self, rows: &[Vec<Value>]) -> f64 {
        for rows in rows.chunks(LOADED) {
            self.change(rows.iter().map(|row| Change::Remove(row[..1].to_vec())).collect());
        }
        let began = Instant::now();
        for rows in rows.chunks(LOADED) {
            self.change(rows.iter().cloned().map(Change::Insert).collect());
        }
        began.elapsed().as_secs_f64() * 1e3
    }

    /// Changes rows; returns the time until the change was visible.
    fn change(&self, changes: Vec<Change>) -> Duration {
        let began = Instant::now();
        let mut store = lock(self.store);
        let pending = store.change(&self.table, changes, clock::now()).expect("there is room for all rows");
        self.publish(&mut store, pending, began)
    }

    /// Sends a change to the forwarder, waits until it is applied, and settles it. Returns the time until then.
    fn publish(&self, store: &mut StateStore, pending: PendingChange, began: Instant) -> Duration {
        let swap = Arc::clone(&pending.swap);
        self.send_and_wait(|done| Mail::ApplySwap(swap, done));
        let seen = began.elapsed();
        store.settle(pending);
        seen
    }

    /// Sends a mail to the forwarder and waits for its acknowledgement.
    fn send_and_wait(&self, mail: impl FnOnce(Sender<()>) -> Mail) {
        let (done, acknowledged) = channel();
        // If the forwarder is gone, the next figure reports it.
        if self.mail.send(mail(done)).is_ok() {
            let _ = acknowledged.recv();
        }
    }

    /// Rebuilds as a node does; returns the milliseconds of each rebuild.
    fn rebuild_until(&self, stopped: &Receiver<()>) -> Vec<f64> {
        let mut took = Vec::new();
        let mut rest = REBUILD_EVERY;
        while stopped.recv_timeout(rest) == Err(RecvTimeoutError::Timeout) {
            let built = self.rebuild_once();
            took.extend(built.map(|built| built.as_secs_f64() * 1e3));
            rest = built.unwrap_or_default().max(REBUILD_EVERY);
        }
        took
    }

    /// Rebuilds the search structure of the table with the most changes since its last. Returns the duration; None if
    /// there is nothing to rebuild.
    fn rebuild_once(&self) -> Option<Duration> {
        let began = Instant::now();
        let store = lock(self.store);
        let stale = store.stale().into_iter().max_by_key(|stale| stale.changes)?;
        let snapshot = store.snapshot(&stale.name, stale.at)?;
        drop(store);
        let built = snapshot.rebuild();
        let mut store = lock(self.store);
        if let Some(pending) = store.adopt(&stale.name, stale.at, built) {
            self.publish(&mut store, pending, began);
        }
        Some(began.elapsed())
    }
}

fn lock(store: &Mutex<StateStore>) -> MutexGuard<'_, StateStore> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure would be meaningless if rows did not change, or packets were dropped.
    #[test]
    fn row_changes_keep_packets_flowing() {
        let mut router = CHANGED[2];
        router.0.routes = FEW;
        for (case, table) in [CHANGED[0], router] {
            let figures = of_case(&case, table, 1).expect("it runs");
            let of =
                |metric: &str| figures.iter().find(|row| row.metric == metric).expect("it is measured").value;
            assert!(of("while") > 0.0 && of("anew") > 0.0 && of("most") > 0.0);
            assert!(of("visible p50") <= of("visible p99"));
        }
    }
}
