//! Rows that a handler adds: the time until a packet matches one.
//!
//! The path is that of a node, without its admin interface: from the worker's batch through the writer's thread to the
//! thread that changes the table, and back to the worker, between two batches.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weft_core::Time;
use weft_core::frame::build::ethernet;
use weft_core::frame::{Pool, PoolConfig};
use weft_core::hash::HashKey;
use weft_engine::packet::{PacketConfig, PacketEngine};
use weft_engine::rules::Swap;
use weft_engine::sinks::TableRow;
use weft_engine::state::StateStore;
use weft_io::{RowSender, Writer, clock};
use weft_jit::Jit;
use weft_lang::hir::Network;

use super::cases::plan_of;
use crate::machine::accepted;
use crate::report::Row;
use weft_control::tables::sent_changes;
use weft_io::writer::{ROWS_WAITING_MAX, receive_rows};

/// A packet to port 1 adds its source; later packets of this source are dropped.
const PROGRAM: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT lan ON memory;
CREATE PORT wan ON memory;
CREATE ELEMENT learning ON udp AS
  TABLE known (src IPADDR PRIMARY KEY, seen BOOL = TRUE) MAX 100000 ROWS FILLED BY CONTROLLER;
  SINK learn (src IPADDR) TO TABLE known;
  ON PACKET
    IF coalesce((SELECT seen FROM known WHERE src = ip.src), FALSE) THEN DROP; END IF;
    IF udp.dst_port = 1 THEN INSERT INTO learn VALUES (ip.src); END IF;
END;
CREATE CHAIN c ON PORT lan -> wan AS learning; END;
";
/// A row that is not visible within this time never will be.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// Messages to the worker.
type Mail = (Arc<Swap>, Sender<()>);

/// The figures of this many rows, one after the other.
pub(super) fn run(n: usize) -> Result<Vec<Row>, String> {
    let (accepted, _) = accepted([("bench.weft", PROGRAM.to_owned())])?;
    let network = accepted.network.clone();
    let backend = Jit::new().map_err(|why| why.to_string())?;
    let mut store = StateStore::new(1, HashKey::from_seed(1));
    let mut staged = store.stage();
    let plan = plan_of(accepted, &mut staged, &backend)?;
    store.commit(staged);
    let (tables, learned) = sync_channel(ROWS_WAITING_MAX);
    let (writer, mut senders) = Writer::start(1, Some(tables)).map_err(|error| error.to_string())?;
    let sender = senders.pop().ok_or("there is no writer")?;
    let (mail, mailbox) = channel();
    let store = Mutex::new(store);
    let seen = thread::scope(|threads| {
        let network = &network;
        let changing = threads.spawn(move || change(network, &store, &learned, &mail));
        let mut worker = Worker::new(Arc::new(plan), sender, mailbox);
        let seen = (0..n as u32).map(|nth| worker.time_of(nth)).collect::<Result<Vec<f64>, String>>();
        // The writer ends with its last sender, and the thread that changes tables ends with the writer.
        drop(worker);
        changing.join().map_err(|_| "the changing thread has ended badly".to_owned())?;
        seen
    });
    writer.join();
    let mut seen = seen?;
    seen.sort_by(f64::total_cmp);
    let quantile = |q: f64| seen[((seen.len() - 1) as f64 * q) as usize];
    let row = |metric, value| Row::new("by a handler", metric, "ms", &[value]);
    Ok(vec![row("visible p50", quantile(0.5)), row("visible p99", quantile(0.99))])
}

/// Inserts the rows that the chain sends, as a node does.
fn change(network: &Network, store: &Mutex<StateStore>, rows: &Receiver<TableRow>, mail: &Sender<Mail>) {
    receive_rows(rows, |rows| {
        let mut store = store.lock().expect("nobody else has it");
        for (name, changes) in sent_changes(network, rows).0 {
            let (Some(pending), _) = store.change_where_possible(&name, changes, clock::now()) else {
                continue;
            };
            let (done, taken) = channel();
            if mail.send((Arc::clone(&pending.swap), done)).is_ok() {
                let _ = taken.recv();
            }
            store.settle(pending);
        }
        true
    });
}

/// The forwarder.
struct Worker {
    engine: PacketEngine,
    pool: Pool,
    sender: RowSender,
    mailbox: Receiver<Mail>,
}

impl Worker {
    fn new(
        plan: Arc<weft_engine::packet::plan::PacketPlan>,
        sender: RowSender,
        mailbox: Receiver<Mail>,
    ) -> Self {
        let engine = PacketEngine::new(Time(0), PacketConfig::default(), plan);
        Self { engine, pool: Pool::new(PoolConfig::default()), sender, mailbox }
    }

    /// Milliseconds from the packet that adds a row until a packet matches it.
    fn time_of(&mut self, nth: u32) -> Result<f64, String> {
        let began = Instant::now();
        if !self.passes(nth, 1) {
            return Err("a packet saw a row that was not there".to_owned());
        }
        while self.passes(nth, 2) {
            if began.elapsed() > SEEN_WITHIN {
                return Err("a row was never seen".to_owned());
            }
        }
        Ok(began.elapsed().as_secs_f64() * 1e3)
    }

    /// Whether a packet of a source to a port passes.
    fn passes(&mut self, source: u32, dst_port: u16) -> bool {
        let frame = self.pool.take_filled(&packet(source, dst_port)).expect("all others were given back");
        let mut frames = vec![frame];
        self.engine.handle_batch(Time(1), 0, &mut frames, &mut self.pool, None);
        let mut n = 0;
        while self.engine.poll_output(&mut frames).is_some() {
            n += frames.len();
            frames.drain(..).for_each(|frame| self.pool.give(frame));
        }
        if self.engine.rows().is_due() {
            self.sender.send(self.engine.rows());
        }
        if let Ok((swap, done)) = self.mailbox.try_recv() {
            self.engine.apply_swap(&swap);
            // Drop it before the receiver gets the answer.
            drop(swap);
            let _ = done.send(());
        }
        n == 1
    }
}

/// A UDP packet from 10.0.0.0 plus `source`.
fn packet(source: u32, dst_port: u16) -> Vec<u8> {
    let ip = ethernet().macs([2; 6], [2; 6]).ipv4((0x0a00_0000 | source).to_be_bytes(), [192, 0, 2, 1]);
    [&ip.udp(9, dst_port).checksum(0).build()[..], &[0; 18]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure would be meaningless if packets did not match new rows, or matched without them.
    #[test]
    fn learned_rows_match_later_packets() {
        let figures = run(5).expect("it runs");
        assert!(figures[0].value > 0.0 && figures[0].value <= figures[1].value);
    }
}
